package remoting

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// writeCert writes a new key and a certificate for it, self-signed, with this name.
func writeCert(t testing.TB, m TLSMaterial, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}
	if m.KeyPassword != "" {
		block = &pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: encryptPKCS8(t, pkcs8, m.KeyPassword)}
	}
	for path, b := range map[string][]byte{m.KeyPath: pem.EncodeToMemory(block),
		m.CertPath: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// encryptPKCS8 is what openssl pkcs8 -topk8 -v2 aes-256-cbc -v2prf hmacWithSHA256 does.
func encryptPKCS8(t testing.TB, der []byte, password string) []byte {
	t.Helper()
	salt, iv := []byte("saltsalt"), []byte("0123456789abcdef")
	key, err := pbkdf2.Key(sha256.New, password, salt, 2048, 32)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	pad := 16 - len(der)%16
	data := append(bytes.Clone(der), bytes.Repeat([]byte{byte(pad)}, pad)...)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(data, data)
	must := func(v any) asn1.RawValue {
		b, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return asn1.RawValue{FullBytes: b}
	}
	params := pbes2Params{
		KDF: pkix.AlgorithmIdentifier{Algorithm: oidPBKDF2, Parameters: must(struct {
			Salt []byte
			N    int
			PRF  pkix.AlgorithmIdentifier
		}{salt, 2048, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 9}, Parameters: asn1.NullRawValue}})},
		Cipher: pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}, Parameters: must(iv)},
	}
	return must(encryptedKey{pkix.AlgorithmIdentifier{Algorithm: oidPBES2, Parameters: must(params)}, data}).FullBytes
}

func material(dir, name string) TLSMaterial {
	return TLSMaterial{KeyPath: filepath.Join(dir, name+".key"), CertPath: filepath.Join(dir, name+".pem")}
}

func TestTLSModes(t *testing.T) {
	own := material(t.TempDir(), "server")
	writeCert(t, own, "own")
	tests := []struct {
		name          string
		opts          TLSOptions
		plain, secure bool
	}{
		{"permissive, test mode", TLSOptions{TestMode: true}, true, true},
		{"permissive, own certificate", TLSOptions{Server: own}, true, true},
		{"permissive, nothing", TLSOptions{}, true, false},
		{"disabled", TLSOptions{Mode: TLSDisabled, TestMode: true}, true, false},
		{"enforcing", TLSOptions{Mode: TLSEnforcing, Server: own}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			executed := false
			mux := NewMux()
			mux.Handle(codeEcho, Inline, func(req *Request, resp *Response) error { executed = true; return echo(req, resp) })
			s := startServer(t, ServerConfig{TLS: tt.opts}, mux, nil)
			w := dialWire(t, s.Addr())
			w.send(request(codeEcho, 1, protocol.JSON, "plain"))
			if tt.plain {
				if a := w.answer(); string(a.Body) != "plain" {
					t.Fatalf("%+v", a)
				}
			} else if got := w.closed(); len(got) > 0 {
				t.Fatalf("answered %q", got)
			}
			client := startClient(t, ClientConfig{TLS: &TLSOptions{}}, nil)
			a, err := client.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, []byte("secure")))
			var refused *ConnectError
			switch {
			case tt.secure && (err != nil || string(a.Body) != "secure"):
				t.Fatal(a, err)
			case !tt.secure && (!errors.As(err, &refused) || !strings.Contains(err.Error(), "handshake failure")):
				t.Fatalf("TLS client sees: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if !tt.plain && !tt.secure && executed {
				t.Error("executed")
			}
		})
	}
	s := NewServer(ServerConfig{TLS: TLSOptions{Mode: TLSEnforcing}, BindAddress: "127.0.0.1"}, nil, nil, quiet)
	if err := s.Start(); err == nil {
		t.Error("enforcing without a certificate")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestManyMixedConnections(t *testing.T) {
	s := startServer(t, ServerConfig{TLS: TLSOptions{TestMode: true}}, testMux(nil), nil)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 25 {
				cfg := ClientConfig{}
				if i%2 == 0 {
					cfg.TLS = &TLSOptions{}
				}
				c := NewClient(cfg, nil, quiet)
				a, err := c.Call(context.Background(), s.Addr().String(), protocol.NewRequest(codeLater, nil, bytes.Repeat([]byte("x"), 100_000)))
				if err != nil || len(a.Body) != 100_000 {
					t.Error(err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	server, good, stranger := material(dir, "server"), material(dir, "good"), material(dir, "stranger")
	good.KeyPassword = "secret word"
	for name, m := range map[string]TLSMaterial{"server": server, "good": good, "stranger": stranger} {
		writeCert(t, m, name)
	}
	server.TrustCertPath, server.AuthPeer = good.CertPath, true
	s := startServer(t, ServerConfig{TLS: TLSOptions{Server: server, NeedClientAuth: "require"}}, testMux(nil), nil)
	trusting := good
	trusting.TrustCertPath, trusting.AuthPeer = server.CertPath, true
	doubting := good
	doubting.TrustCertPath, doubting.AuthPeer = stranger.CertPath, true
	wrong := good
	wrong.KeyPassword = "other"
	for name, tt := range map[string]struct {
		m  TLSMaterial
		ok bool
	}{"known": {good, true}, "unknown": {stranger, false}, "none": {TLSMaterial{}, false}, "server checked": {trusting, true},
		"server refused": {doubting, false}, "wrong password": {wrong, false}} {
		client := startClient(t, ClientConfig{TLS: &TLSOptions{Client: tt.m}}, nil)
		_, err := client.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil))
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCertificateReload(t *testing.T) {
	m := material(t.TempDir(), "server")
	writeCert(t, m, "first")
	s := startServer(t, ServerConfig{TLS: TLSOptions{Server: m}}, testMux(nil), nil)
	name := func() string {
		c, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if n := name(); n != "first" {
		t.Fatal(n)
	}
	old := startClient(t, ClientConfig{TLS: &TLSOptions{}}, nil)
	callOK(t, old, s.Addr().String(), codeEcho, "before")
	if err := os.WriteFile(m.CertPath, []byte("half"), 0o600); err != nil { // does not fit: the former stays
		t.Fatal(err)
	}
	writeCert(t, m, "second")
	for deadline := time.Now().Add(20 * time.Second); name() != "second"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not used")
		}
	}
	callOK(t, old, s.Addr().String(), codeEcho, "the old connection goes on")
	if n := old.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestLoadTLS(t *testing.T) {
	o, err := LoadTLS(filepath.Join(t.TempDir(), "none"))
	if err != nil || !o.TestMode || o.Mode != TLSPermissive {
		t.Fatalf("%+v %v", o, err)
	}
	path := filepath.Join(t.TempDir(), "tls.properties")
	text := "tls.test.mode.enable=false\ntls.server.mode=enforcing\ntls.server.need.client.auth = optional\ntls.server.keyPath=/k\n" +
		"tls.server.keyPassword=p w\ntls.server.certPath=/c\ntls.server.authClient=true\ntls.server.trustCertPath=/t\n" +
		"tls.client.keyPath=/ck\ntls.client.certPath=/cc\ntls.client.authServer=TRUE\ntls.client.trustCertPath=/ct\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err = LoadTLS(path)
	want := TLSOptions{Mode: TLSEnforcing, NeedClientAuth: "optional", Server: TLSMaterial{"/k", "p w", "/c", "/t", true},
		Client: TLSMaterial{"/ck", "", "/cc", "/ct", true}}
	if err != nil || o != want {
		t.Fatalf("%+v %v", o, err)
	}
	if err := os.WriteFile(path, []byte("tls.server.mode=strict"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = LoadTLS(path); err == nil {
		t.Error("unknown mode accepted")
	}
}

func TestProxyProtocol(t *testing.T) {
	v2 := func(cmd, family byte, data []byte) []byte {
		return append(append([]byte(proxyV2), 0x20|cmd, family, byte(len(data)>>8), byte(len(data))), data...)
	}
	v4 := []byte{203, 0, 113, 7, 10, 0, 0, 1, 0x30, 0x39, 0x2A, 0x9F}
	v6 := append(append(net.ParseIP("2001:db8::7"), net.ParseIP("::1")...), 0x30, 0x39, 0x2A, 0x9F)
	tlvs := []byte{0xE1, 0, 3, 'v', 'p', 'c', 0xE2, 0, 1, 200, 0x04, 0, 9}
	tests := []struct {
		name, from, server, tlv string
		header                  []byte
		bad                     bool
	}{
		{name: "v1", header: []byte("PROXY TCP4 203.0.113.7 10.0.0.1 12345 10911\r\n"), from: "203.0.113.7:12345", server: "10.0.0.1"},
		{name: "v1 v6", header: []byte("PROXY TCP6 2001:db8::7 ::1 12345 10911\r\n"), from: "[2001:db8::7]:12345", server: "::1"},
		{name: "v1 unknown", header: []byte("PROXY UNKNOWN\r\n")},
		{name: "v2", header: v2(1, 0x11, v4), from: "203.0.113.7:12345", server: "10.0.0.1"},
		{name: "v2 v6", header: v2(1, 0x21, v6), from: "[2001:db8::7]:12345", server: "::1"},
		{name: "v2 tlv", header: v2(1, 0x11, append(bytes.Clone(v4), tlvs...)), from: "203.0.113.7:12345", server: "10.0.0.1", tlv: "vpc"},
		{name: "v2 local", header: v2(0, 0, nil)},
		{name: "v2 short", header: v2(1, 0x11, v4[:5]), bad: true},
		{name: "v2 version 3", header: append([]byte(proxyV2), 0x31, 0, 0, 0), bad: true},
		{name: "v1 bad address", header: []byte("PROXY TCP4 203.0.113 10.0.0.1 12345 10911\r\n"), bad: true},
		{name: "v1 no end", header: bytes.Repeat([]byte("PROXY "), 20), bad: true},
	}
	conns := make(chan *Conn, 1)
	mux := NewMux()
	mux.Handle(codeEcho, Inline, func(req *Request, resp *Response) error { conns <- req.Conn(); return nil })
	on := startServer(t, ServerConfig{ProxyProtocol: true, TLS: TLSOptions{TestMode: true}}, mux, nil)
	off := startServer(t, ServerConfig{}, mux, nil)
	for _, tt := range tests {
		for _, how := range []string{"whole", "split", "tls"} {
			t.Run(tt.name+" "+how, func(t *testing.T) {
				w := dialWire(t, on.Addr())
				local := w.LocalAddr().String()
				for i := range tt.header {
					if how != "split" {
						w.send(tt.header)
						break
					}
					if _, err := w.Write(tt.header[i : i+1]); err != nil {
						break
					}
				}
				if tt.bad {
					w.closed()
					return
				}
				if how == "tls" {
					w = newWire(t, tls.Client(w.Conn, &tls.Config{InsecureSkipVerify: true}))
				}
				w.send(request(codeEcho, 1, protocol.JSON, ""))
				w.answer()
				c, from := <-conns, tt.from
				if from == "" {
					from = local
				}
				if c.RemoteAddr() != from || c.RemoteAddrPort().String() != local || c.Attr(AttrProxyServerAddr) != tt.server ||
					c.Attr("proxy_protocol_tlv_0xe1") != tt.tlv || c.Attr("proxy_protocol_tlv_0xe2") != "" {
					t.Fatalf("%s %s %v", c.RemoteAddr(), c.RemoteAddrPort(), c.attrs)
				}
			})
		}
		w := dialWire(t, off.Addr())
		w.send(tt.header)
		w.closed()
	}
}

func FuzzParseProxy(f *testing.F) {
	f.Add([]byte("PROXY TCP4 203.0.113.7 10.0.0.1 12345 10911\r\nrest"))
	f.Add(append([]byte(proxyV2), 0x21, 0x11, 0, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xE1, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !mayBeProxy(b) {
			return
		}
		n, _, err := parseProxy(b)
		if n < 0 || n > len(b) || err != nil && n != 0 {
			t.Fatal(n, err)
		}
	})
}

func FuzzDecryptKey(f *testing.F) {
	f.Add([]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2000 {
			return
		}
		_, _ = decryptPKCS8(b, "x")
		_, _ = decryptKey(b, "x")
	})
}

func TestForeignProtocols(t *testing.T) {
	s := startServer(t, ServerConfig{}, testMux(nil), nil)
	for name, b := range map[string]string{"http": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "grpc": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"ssh": "SSH-2.0-OpenSSH_9.6\r\n", "proxy": "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n", "proxy v2": proxyV2 + "\x21\x11\x00\x00",
		"tls": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "one byte": "G"} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, s.Addr())
			w.send([]byte(b))
			if got := w.closed(); name != "tls" && len(got) > 0 {
				t.Fatalf("%q", got)
			}
		})
	}
	for deadline := time.Now().Add(5 * time.Second); s.Stats().Foreign != 7; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", s.Stats())
		}
	}
	for b, want := range map[string]string{"GET / HTTP": "HTTP request", "PRI * HT": "gRPC", "SSH-2": "SSH", "PROXY T": "PROXY", "xxxx": "no frame"} {
		if got := foreignHint([]byte(b), false); !strings.Contains(got, want) {
			t.Errorf("%q: %s", b, got)
		}
	}
}

func TestPrefixListener(t *testing.T) {
	s := startServer(t, ServerConfig{TLS: TLSOptions{TestMode: true}}, testMux(nil), nil)
	l := s.ListenPrefix("RAFT/1\n")
	other := s.ListenPrefix("RAFX")
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	for _, secure := range []bool{false, true} {
		for _, split := range []bool{false, true} {
			c, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if secure {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			}
			w := newWire(t, c)
			b := []byte("RAFT/1\nhello")
			if split {
				for i := range b {
					w.send(b[i : i+1])
				}
			} else {
				w.send(b)
			}
			got := make([]byte, 5)
			if _, err := io.ReadFull(w.r, got); err != nil || string(got) != "hello" {
				t.Fatalf("%q %v", got, err)
			}
			w.send([]byte("more!"))
			if _, err := io.ReadFull(w.r, got); err != nil || string(got) != "more!" {
				t.Fatalf("%q %v", got, err)
			}
			_ = w.Close()
		}
	}
	w := dialWire(t, s.Addr())
	w.send([]byte("RAFX waits for an accept that does not come"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	w.closed()
	if _, err := other.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	wg.Wait()
	if l.Addr() == nil {
		t.Error("no address")
	}
}

func TestBindIPv6(t *testing.T) {
	s := NewServer(ServerConfig{BindAddress: "::1"}, testMux(nil), nil, quiet)
	if err := s.Start(); err != nil {
		t.Skip(fmt.Sprint("no IPv6 here: ", err))
	}
	defer s.Close()
	c := startClient(t, ClientConfig{}, nil)
	callOK(t, c, s.Addr().String(), codeEcho, "x")
}
