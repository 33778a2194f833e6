// Floor is the smallest server that does what a broker cannot leave out: it cuts remoting frames, decodes the send header
// by hand, checks nothing, computes the CRC, copies the record into memory (with -sync also into a file that is flushed in
// groups) and answers all frames of one read with one write. It serves pulls from the same memory. The driver measures the
// broker against it, side by side in one run; it is no broker and keeps nothing.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:0", "address")
	file := flag.String("sync", "", "file that is flushed before a send is answered; empty: memory only")
	mem := flag.Int("mem", 256<<20, "bytes of memory for records")
	flag.Parse()
	if err := run(*addr, *file, *mem); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(addr, file string, mem int) error {
	log := newMemLog(mem)
	var f *flusher
	if file != "" {
		var err error
		if f, err = newFlusher(file); err != nil {
			return err
		}
		go f.run()
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening", ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go serve(c.(*net.TCPConn), log, f)
	}
}
