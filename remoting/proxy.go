package remoting

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	proxyV1 = "PROXY "
	proxyV2 = "\r\n\r\n\x00\r\nQUIT\n"

	proxyV1Most = 107
)

// Names of the attributes that a PROXY header sets.
const (
	AttrProxyAddr       = "proxy_protocol_addr"
	AttrProxyPort       = "proxy_protocol_port"
	AttrProxyServerAddr = "proxy_protocol_server_addr"
	AttrProxyServerPort = "proxy_protocol_server_port"
	attrProxyTLV        = "proxy_protocol_tlv_0x" // and two digits
)

// proxyInfo is what a PROXY header says. Zero addresses are those of the proxy's own checks.
type proxyInfo struct {
	from, to netip.AddrPort
	tlvs     map[string]string
}

// mayBeProxy says that b begins a PROXY header, or may once more bytes have come.
func mayBeProxy(b []byte) bool {
	n1, n2 := min(len(b), len(proxyV1)), min(len(b), len(proxyV2))
	return string(b[:n1]) == proxyV1[:n1] || string(b[:n2]) == proxyV2[:n2]
}

// parseProxy reads the PROXY header that b begins with. n is its length, 0 when it is not complete.
func parseProxy(b []byte) (n int, info proxyInfo, err error) {
	if len(b) > 0 && b[0] == 'P' {
		return parseProxyV1(b)
	}
	if len(b) < 16 {
		return 0, info, nil
	}
	if b[12]>>4 != 2 || b[12]&15 > 1 {
		return 0, info, &ForeignError{fmt.Sprintf("PROXY header with version and command 0x%02x", b[12])}
	}
	size := 16 + int(binary.BigEndian.Uint16(b[14:]))
	if len(b) < size {
		return 0, info, nil
	}
	data := b[16:size]
	var used int
	if b[12]&15 == 1 { // PROXY, not LOCAL
		switch b[13] >> 4 {
		case 1:
			used = 12
		case 2:
			used = 36
		case 3:
			used = 216
		}
		if len(data) < used {
			return 0, info, &ForeignError{"PROXY header is too short for its addresses"}
		}
		if used == 12 || used == 36 {
			w := (used - 4) / 2
			from, _ := netip.AddrFromSlice(data[:w]) // 4 or 16 bytes are always an address
			to, _ := netip.AddrFromSlice(data[w : 2*w])
			info.from = netip.AddrPortFrom(from.Unmap(), binary.BigEndian.Uint16(data[2*w:]))
			info.to = netip.AddrPortFrom(to.Unmap(), binary.BigEndian.Uint16(data[2*w+2:]))
		}
	}
	info.tlvs = parseTLVs(data[used:])
	return size, info, nil
}

// parseTLVs keeps the values that are ASCII; what follows a broken one is left out.
func parseTLVs(b []byte) map[string]string {
	var tlvs map[string]string
	for len(b) >= 3 {
		n := int(binary.BigEndian.Uint16(b[1:]))
		if len(b) < 3+n {
			break
		}
		value := b[3 : 3+n]
		if isASCII(value) {
			if tlvs == nil {
				tlvs = make(map[string]string)
			}
			tlvs[fmt.Sprintf("%s%02x", attrProxyTLV, b[0])] = string(value)
		}
		b = b[3+n:]
	}
	return tlvs
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c > 0x7E {
			return false
		}
	}
	return len(b) > 0
}

func parseProxyV1(b []byte) (n int, info proxyInfo, err error) {
	line, _, found := strings.Cut(string(b[:min(len(b), proxyV1Most)]), "\r\n")
	if !found {
		if len(b) >= proxyV1Most {
			return 0, info, &ForeignError{"PROXY header without an end"}
		}
		return 0, info, nil
	}
	n = len(line) + 2
	f := strings.Split(line, " ")
	if len(f) >= 2 && f[1] == "UNKNOWN" {
		return n, info, nil
	}
	if len(f) != 6 || f[1] != "TCP4" && f[1] != "TCP6" {
		return 0, info, &ForeignError{"PROXY header of an unknown kind"}
	}
	from, err1 := netip.ParseAddr(f[2])
	to, err2 := netip.ParseAddr(f[3])
	fromPort, err3 := strconv.ParseUint(f[4], 10, 16)
	toPort, err4 := strconv.ParseUint(f[5], 10, 16)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return 0, info, &ForeignError{"PROXY header with a malformed address"}
	}
	info.from = netip.AddrPortFrom(from.Unmap(), uint16(fromPort))
	info.to = netip.AddrPortFrom(to.Unmap(), uint16(toPort))
	return n, info, nil
}

// proxied notes what a PROXY header said.
func (c *Conn) proxied(info proxyInfo) {
	c.attrs = info.tlvs
	if !info.from.IsValid() {
		return
	}
	if c.attrs == nil {
		c.attrs = make(map[string]string)
	}
	c.attrs[AttrProxyAddr] = info.from.Addr().String()
	c.attrs[AttrProxyPort] = strconv.Itoa(int(info.from.Port()))
	c.attrs[AttrProxyServerAddr] = info.to.Addr().String()
	c.attrs[AttrProxyServerPort] = strconv.Itoa(int(info.to.Port()))
	c.name = info.from.String()
}
