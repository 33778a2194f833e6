// Package controller is RocketMQ's controller: it knows the brokers of each set, elects their masters, and keeps that
// knowledge in a Raft group of one or more controllers.
//
// Controller is the main type; cmd makes one from a configuration, alone or beside a name server. Requests of brokers and
// administrators share one port with Raft. What is decided lies in controller/machine, which every
// controller applies in the order of the log; this package says what was alive when a decision was proposed, when to
// propose one, and who is told. It never reads a broker's store and never imports broker, namesrv or store.
//
// DESIGN.md lists goroutines, locks and invariants.
package controller
