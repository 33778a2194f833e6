package message

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

const upperHex = "0123456789ABCDEF"

func appendHex(dst, b []byte) []byte {
	for _, c := range b {
		dst = append(dst, upperHex[c>>4], upperHex[c&15])
	}
	return dst
}

// AppendID appends the offset message id: host, port and log offset in upper-case hex, 32 characters for IPv4 and 56 for IPv6.
func AppendID(dst []byte, host netip.AddrPort, off LogOffset) []byte {
	var b [28]byte
	raw := appendHost(b[:0], host)
	raw = binary.BigEndian.AppendUint64(raw, uint64(off))
	return appendHex(dst, raw)
}

// ParseID decodes an offset message id of either length, in either case.
func ParseID(s string) (netip.AddrPort, LogOffset, error) {
	if len(s) != 32 && len(s) != 56 {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %q: %d characters; an id has 32 or 56", clip(s), len(s))
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %q: %w", s, err)
	}
	n := len(b) - 12
	ip, _ := netip.AddrFromSlice(b[:n])
	port := binary.BigEndian.Uint32(b[n:])
	off := LogOffset(binary.BigEndian.Uint64(b[n+4:]))
	if port > 65535 || off < 0 {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %q: port %d, offset %d", s, port, off)
	}
	return netip.AddrPortFrom(ip, uint16(port)), off, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// UniqIDs makes the client-side ids of messages (UNIQ_KEY): address, process, a number of this generator, milliseconds since the start of the
// month, counter. Safe for concurrent use.
type UniqIDs struct {
	prefix  [22]byte // address, process id, generator
	n       int
	start   atomic.Int64 // ms, first instant of the month
	next    atomic.Int64 // ms, first instant of the next month
	counter atomic.Uint32
	now     func() time.Time
}

// NewUniqIDs returns a generator for a host and a process. Two generators of one process make different ids.
func NewUniqIDs(ip netip.Addr, pid int) *UniqIDs {
	u := &UniqIDs{now: time.Now}
	if ip.Is4() || ip.Is4In6() {
		b := ip.As4()
		u.n = copy(u.prefix[:], b[:])
	} else {
		b := ip.As16()
		u.n = copy(u.prefix[:], b[:])
	}
	binary.BigEndian.PutUint16(u.prefix[u.n:], uint16(pid))
	binary.BigEndian.PutUint32(u.prefix[u.n+2:], uint32(maphash.Bytes(maphash.MakeSeed(), nil)))
	u.n += 6
	return u
}

// Append appends a new id, 32 characters for an IPv4 host and 56 for IPv6.
func (u *UniqIDs) Append(dst []byte) []byte {
	now := u.now()
	ms := now.UnixMilli()
	if ms >= u.next.Load() {
		first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, now.Location())
		u.start.Store(first.UnixMilli())
		u.next.Store(first.AddDate(0, 1, 0).UnixMilli())
	}
	var b [28]byte
	n := copy(b[:], u.prefix[:u.n])
	binary.BigEndian.PutUint32(b[n:], uint32(ms-u.start.Load()))
	binary.BigEndian.PutUint16(b[n+4:], uint16(u.counter.Add(1)-1))
	return appendHex(dst, b[:n+6])
}
