package remoting

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/magiconair/properties"
)

// TLSMode says which connections a server takes.
type TLSMode uint8

const (
	TLSPermissive TLSMode = iota // both plain and TLS
	TLSDisabled                  // plain only
	TLSEnforcing                 // TLS only
)

// ParseTLSMode reads tls.server.mode.
func ParseTLSMode(s string) (TLSMode, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "permissive", "":
		return TLSPermissive, nil
	case "disabled":
		return TLSDisabled, nil
	case "enforcing":
		return TLSEnforcing, nil
	}
	return 0, fmt.Errorf("tls.server.mode %q is none of disabled, permissive, enforcing", s)
}

// TLSMaterial are the files of one side, PEM. The key is PKCS#8, with a password or without.
type TLSMaterial struct {
	KeyPath, KeyPassword, CertPath string
	TrustCertPath                  string // who may have signed the peer's certificate; the system's list when empty
	AuthPeer                       bool   // check the peer's certificate
}

// TLSOptions are the keys of RocketMQ's TLS property file. With the zero value TLS clients are refused.
type TLSOptions struct {
	Mode           TLSMode
	TestMode       bool   // without own material: a self-signed certificate, and trust in every peer
	NeedClientAuth string // none, optional, require
	Server, Client TLSMaterial
}

// DefaultTLSFile is where RocketMQ looks for the property file.
const DefaultTLSFile = "/etc/rocketmq/tls.properties"

// LoadTLS reads a TLS property file over RocketMQ's defaults: permissive, test mode. A missing file leaves the defaults.
func LoadTLS(path string) (TLSOptions, error) {
	o := TLSOptions{TestMode: true}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("read TLS properties: %w", err)
	}
	l := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := l.LoadBytes(b)
	if err != nil {
		return o, fmt.Errorf("parse TLS properties %s: %w", path, err)
	}
	text := func(key, def string) string { return strings.TrimSpace(p.GetString(key, def)) }
	yes := func(key string, def bool) bool {
		return strings.EqualFold(text(key, fmt.Sprint(def)), "true")
	}
	if o.Mode, err = ParseTLSMode(text("tls.server.mode", "")); err != nil {
		return o, fmt.Errorf("TLS properties %s: %w", path, err)
	}
	o.TestMode = yes("tls.test.mode.enable", true)
	o.NeedClientAuth = text("tls.server.need.client.auth", "none")
	o.Server = TLSMaterial{text("tls.server.keyPath", ""), text("tls.server.keyPassword", ""), text("tls.server.certPath", ""),
		text("tls.server.trustCertPath", ""), yes("tls.server.authClient", false)}
	o.Client = TLSMaterial{text("tls.client.keyPath", ""), text("tls.client.keyPassword", ""), text("tls.client.certPath", ""),
		text("tls.client.trustCertPath", ""), yes("tls.client.authServer", false)}
	return o, nil
}

// tlsSource holds the configuration of a server in force; watch replaces it when its files change.
type tlsSource struct {
	opts    TLSOptions
	mode    TLSMode
	current atomic.Pointer[tls.Config]
	self    func() (*tls.Config, error) // the self-signed one, made when the first client wants it
	stamps  []stamp                     // of watch
}

func newTLSSource(opts TLSOptions) (*tlsSource, error) {
	s := &tlsSource{opts: opts, mode: opts.Mode}
	if opts.Mode == TLSDisabled {
		return s, nil
	}
	if opts.Server.CertPath == "" || opts.Server.KeyPath == "" {
		if opts.TestMode {
			s.self = sync.OnceValues(selfSigned)
		} else if opts.Mode == TLSEnforcing {
			return nil, errors.New("tls.server.mode is enforcing, but there is no tls.server.certPath and tls.server.keyPath")
		}
		return s, nil
	}
	s.stamps = stampsOf(opts.Server)
	cfg, err := opts.serverConfig()
	if err != nil {
		return nil, err
	}
	s.current.Store(cfg)
	return s, nil
}

// server is the configuration for a new connection, nil when TLS is refused.
func (s *tlsSource) server() *tls.Config {
	if cfg := s.current.Load(); cfg != nil || s.self == nil {
		return cfg
	}
	cfg, err := s.self()
	if err != nil {
		return nil // no random numbers: the handshake could not work either
	}
	return cfg
}

const watchInterval = time.Second

// watch reloads the material when a file changes, until ctx ends. Files that do not fit together, such as a new
// certificate with the old key, leave the configuration in force.
func (s *tlsSource) watch(ctx context.Context, log *slog.Logger) {
	if s.current.Load() == nil {
		return
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := stampsOf(s.opts.Server)
		if sameStamps(now, s.stamps) {
			continue
		}
		s.stamps = now
		cfg, err := s.opts.serverConfig()
		if err != nil {
			log.Warn("TLS files changed, the former certificate stays in force", "err", err)
			continue
		}
		s.current.Store(cfg)
		log.Info("TLS certificate reloaded", "file", s.opts.Server.CertPath)
	}
}

type stamp struct {
	size int64
	mod  time.Time
}

func stampsOf(m TLSMaterial) []stamp {
	var list []stamp
	for _, p := range []string{m.KeyPath, m.CertPath, m.TrustCertPath} {
		var st stamp
		if fi, err := os.Stat(p); p != "" && err == nil {
			st = stamp{fi.Size(), fi.ModTime()}
		}
		list = append(list, st)
	}
	return list
}

func sameStamps(a, b []stamp) bool {
	for i := range a {
		if i >= len(b) || a[i].size != b[i].size || !a[i].mod.Equal(b[i].mod) {
			return false
		}
	}
	return true
}

func (o *TLSOptions) serverConfig() (*tls.Config, error) {
	cert, err := o.Server.keyPair()
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if cfg.ClientCAs, err = o.Server.trusted(); err != nil {
		return nil, err
	}
	switch strings.ToLower(o.NeedClientAuth) {
	case "none", "":
	case "optional":
		cfg.ClientAuth = tls.RequestClientCert
		if o.Server.AuthPeer {
			cfg.ClientAuth = tls.VerifyClientCertIfGiven
		}
	case "require":
		cfg.ClientAuth = tls.RequireAnyClientCert
		if o.Server.AuthPeer {
			cfg.ClientAuth = tls.RequireAndVerifyClientCert
		}
	default:
		return nil, fmt.Errorf("tls.server.need.client.auth %q is none of none, optional, require", o.NeedClientAuth)
	}
	return cfg, nil
}

// ClientConfig is made for every connection, so that new files are used at once. Names in the server's certificate are not
// compared with the address: clusters are addressed by IP, and the reference does not compare them either.
func (o *TLSOptions) ClientConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	if o.Client.CertPath != "" && o.Client.KeyPath != "" {
		cert, err := o.Client.keyPair()
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	if !o.Client.AuthPeer {
		return cfg, nil
	}
	roots, err := o.Client.trusted()
	if err != nil {
		return nil, err
	}
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errors.New("the server has no certificate")
		}
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range cs.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		_, err := cs.PeerCertificates[0].Verify(opts)
		return err
	}
	return cfg, nil
}

func (m *TLSMaterial) keyPair() (tls.Certificate, error) {
	certPEM, err := os.ReadFile(m.CertPath)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read TLS certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(m.KeyPath)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read TLS key: %w", err)
	}
	if keyPEM, err = decryptKey(keyPEM, m.KeyPassword); err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS key %s: %w", m.KeyPath, err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return cert, fmt.Errorf("TLS certificate %s with key %s: %w", m.CertPath, m.KeyPath, err)
	}
	return cert, nil
}

func (m *TLSMaterial) trusted() (*x509.CertPool, error) {
	if m.TrustCertPath == "" {
		return nil, nil
	}
	b, err := os.ReadFile(m.TrustCertPath)
	if err != nil {
		return nil, fmt.Errorf("read trusted certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("no certificate in %s", m.TrustCertPath)
	}
	return pool, nil
}

// selfSigned is the certificate of the test mode.
func selfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "epochmq test mode"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(10, 0, 0), DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion: tls.VersionTLS12}, nil
}
