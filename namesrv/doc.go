// Package namesrv is the name server: it knows which brokers live and which topics they offer, and tells clients.
//
// Table is the route table, pure: no socket, no clock, no lock held across a call out. KV is the persistent key-value configuration.
// Server puts both behind a remoting server and expires silent brokers. cmd/epochmq starts a Server; several may live in one process. The
// package never talks to other name servers and keeps routes in memory only, as RocketMQ's does.
package namesrv
