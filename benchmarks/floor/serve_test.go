package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func frame(header string, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(header)))
	return append(append(b, header...), body...)
}

const sendHeader = `{"code":310,"extFields":{"a":"G","b":"T","e":"1","i":"KEYS\u0001k\u0002"},"flag":0,"opaque":7}`

func TestServe(t *testing.T) {
	for _, sync := range []bool{false, true} {
		t.Run(fmt.Sprint("sync ", sync), func(t *testing.T) {
			var f *flusher
			if sync {
				var err error
				f, err = newFlusher(filepath.Join(t.TempDir(), "log"))
				require.NoError(t, err)
				go f.run()
				defer close(f.wake)
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			log := newMemLog(1 << 20)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := ln.Accept()
				if err == nil {
					serve(c.(*net.TCPConn), log, f)
				}
			}()
			c, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			two := append(frame(sendHeader, []byte("hello")), frame(sendHeader, []byte("world"))...)
			_, err = c.Write(two)
			require.NoError(t, err)
			for i := range 2 {
				require.Contains(t, string(read(t, c)), fmt.Sprintf(`"queueOffset":"%d"},"flag":1,"language":"JAVA","opaque":7`, i))
			}
			_, err = c.Write(frame(`{"code":11,"extFields":{"topic":"T","queueOffset":"0","maxMsgNums":"2"},"opaque":8}`, nil))
			require.NoError(t, err)
			got := read(t, c)
			require.Contains(t, string(got), "hello")
			require.Contains(t, string(got), "KEYS\x01k\x02")
			require.Contains(t, string(got), "world")
			require.NoError(t, c.Close())
			<-done
		})
	}
}

func read(t *testing.T, c net.Conn) []byte {
	var size [4]byte
	_, err := c.Read(size[:])
	require.NoError(t, err)
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	for n := 0; n < len(b); {
		k, err := c.Read(b[n:])
		require.NoError(t, err)
		n += k
	}
	return b
}

func FuzzHandle(f *testing.F) {
	f.Add(frame(sendHeader, []byte("hello"))[4:])
	f.Add(frame(`{"code":320,"extFields":{"b":"T"},"opaque":1}`, bytes.Repeat([]byte{0, 0, 0, 22}, 12))[4:])
	f.Add(frame(`{"code":11,"extFields":{"queueOffset":"0","maxMsgNums":"2"},"opaque":8}`, nil)[4:])
	log := newMemLog(64 << 20)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		stored := false
		handle(b, nil, log, nil, &stored)
	})
}
