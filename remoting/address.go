package remoting

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Interface is what ChooseAddr needs to know of a network interface.
type Interface struct {
	Name         string
	Up           bool
	PointToPoint bool
	Addrs        []netip.Addr
}

// LocalInterfaces lists the interfaces of this machine.
func LocalInterfaces() ([]Interface, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var list []Interface
	for _, f := range ifs {
		addrs, err := f.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		in := Interface{Name: f.Name, Up: f.Flags&net.FlagUp != 0, PointToPoint: f.Flags&net.FlagPointToPoint != 0}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					in.Addrs = append(in.Addrs, ip.Unmap())
				}
			}
		}
		list = append(list, in)
	}
	return list, nil
}

// virtualPrefixes name interfaces that other machines usually cannot reach.
var virtualPrefixes = []string{"docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "cni", "flannel", "cali", "cilium",
	"kube", "lxc", "lxd", "podman", "tun", "tap", "utun", "wg", "zt", "tailscale", "awdl", "llw", "dummy"}

// ChooseAddr picks the address that a broker tells to others when none is configured: an interface of the machine before those
// of containers and tunnels, IPv4 before IPv6, as the reference any network before 192.168, loopback only when there is
// nothing else. warning is not empty when an operator should look at the choice.
func ChooseAddr(list []Interface) (addr netip.Addr, warning string) {
	best, rivals := -1, 0
	for _, f := range list {
		for _, a := range f.Addrs {
			r := rank(f, a)
			if r < 0 {
				continue
			}
			switch {
			case r > best:
				addr, best, rivals = a.WithZone(""), r, 0
			case r == best:
				rivals++
			}
		}
	}
	switch {
	case best < 0:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), "no network address found: others cannot reach 127.0.0.1, set brokerIP1"
	case addr.IsLoopback():
		warning = fmt.Sprintf("the only address is loopback: others cannot reach %s, set brokerIP1", addr)
	case addr.IsLinkLocalUnicast():
		warning = fmt.Sprintf("the only address is link-local: others may not reach %s, set brokerIP1", addr)
	case rivals > 0:
		warning = fmt.Sprintf("%d addresses are as good as %s: set brokerIP1 if others should use another one", rivals, addr)
	}
	return addr, warning
}

// rank orders addresses; negative ones are never used.
func rank(f Interface, a netip.Addr) int {
	switch {
	case !f.Up, !a.IsValid(), a.IsUnspecified(), a.IsMulticast():
		return -1
	case a.IsLoopback():
		return 0
	case a.IsLinkLocalUnicast():
		return 1
	}
	r := 2
	if a.Is4() {
		r += 4
		if b := a.As4(); b[0] != 192 || b[1] != 168 {
			r++
		}
	} else if !a.IsPrivate() {
		r++
	}
	if !f.PointToPoint && !isVirtual(f.Name) {
		r += 8
	}
	return r
}

func isVirtual(name string) bool {
	for _, p := range virtualPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// HostPort joins an address and a port as clients write them, IPv6 in brackets.
func HostPort(addr netip.Addr, port int) string {
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)).String()
}
