// Package group knows the groups of a broker: what is configured for them and who of them is connected.
//
// The main types are Configs (subscriptionGroup.json: may the group consume, how often is a message retried) and
// Registry (producers and consumers by connection, their subscriptions, telling the members of a group that it
// changed). The handlers of heartbeat, unregister, consumer list and pull use them. It never holds a lock while it
// writes to a connection or a file, and never decides who consumes which queue: clients do.
//
// Format: docs/formats/config-json.md.
package group
