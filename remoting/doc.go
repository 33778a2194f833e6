// Package remoting carries RocketMQ's frames between processes: Server answers requests through the handlers of a Mux,
// Client calls other servers, and Conn, the one connection type of both, goes either way.
//
// Broker, name server and client library build on it. It knows frames, limits, TLS and the PROXY protocol, and nothing of
// topics, stores or roles; protocol has codes and bodies.
//
// One goroutine per connection reads many frames at once and runs Inline handlers on them; what they answer goes out in one
// write after the last frame. Slow handlers run on goroutines of their own, under the limits of their Class. A write never
// blocks the one who answers: what the socket does not take at once is written by a goroutine of the connection, and while
// too much waits there the connection is not read.
package remoting
