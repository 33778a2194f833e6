// Package conformance runs RocketMQ's own clients, admin tool and broker against EpochMQ: make conformance. Its tests carry the build
// tag conformance, because they need a JDK, Maven and module registries.
package conformance
