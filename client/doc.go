// Package client is a RocketMQ client: producers, consumers and what they share.
//
// A Client holds one connection per server, the routes of topics and the heartbeats. A Producer sends through it; a Consumer hands messages to
// a function, in the order of their queues or side by side; a Puller lets the caller fetch them. Applications and the epochmq command use
// it, with EpochMQ or RocketMQ servers alike. It keeps no global state, reads no environment and never exits a process; several Clients
// live side by side. Package client/admin adds the administrative calls.
//
// # Where things are
//
//	client.go nameserver.go route.go heartbeat.go   connections, routes, who we are
//	producer.go outgoing.go queueing.go             sending: what a request looks like, which queue, when again
//	group.go rebalance.go allocate.go lock.go       a member of a consumer group and its share of the queues
//	source.go pull.go                               one queue: what was fetched, what was handed out, what is done
//	consumer.go sendback.go puller.go               the two faces of a group
//	offsets.go                                      where a group is: at the broker, or in a file for broadcasting
//	callback.go                                     requests that brokers send to us
//
// # What must hold
//
//   - An offset is committed only when every message below it was handled, sent back, or filtered out.
//   - A message leaves a source only by done, which is called once for each that was taken; what a reset overtook is told by its
//     generation and changes nothing.
//   - Callbacks of remoting run on a connection's loop: nothing there waits, calls a server or the application's consumer function.
//   - A send whose outcome is unknown (time ran out, connection lost) is repeated only for messages that are not bound to a queue; it may
//     then be stored twice. SendError.Unknown tells.
package client
