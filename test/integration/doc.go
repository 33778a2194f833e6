// Package integration starts real name servers and brokers as processes and treats them badly: kills, restarts, damaged files, full and
// failing disks, hostile frames. It speaks the wire protocol with its own small client (raw.go), so that a fault of the product's codec
// cannot hide itself. `go test` runs short forms; -long runs the full ones.
package integration
