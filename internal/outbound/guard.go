package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// ErrAddress: an address is not one that is connected to. Its text names the kind
// of address, never a host.
var ErrAddress = errors.New("address is refused")

// Guard says which addresses may be connected to. The zero value refuses what no
// service for others lives at, and what a URL from outside would be made to reach:
//
//	this host           127.0.0.0/8, ::1, 0.0.0.0/8, ::
//	link-local          169.254.0.0/16, fe80::/10: VPC Lattice, and
//	  metadata          169.254.169.254, the credentials of containers, AWS's fd00:ec2::/32
//	no host's           multicast, 240.0.0.0/4, broadcast
//	a tunnel's          Teredo, 2001::/32
//
// in whatever form of IPv6 they are written. Private networks are allowed: that is
// where one's own model servers are, and a function reaches them only if it was put
// into their VPC.
type Guard struct {
	// Allow is what is allowed besides. A metadata address is only by a prefix that
	// is that address and no other: 169.254.0.0/16 doesn't open it.
	Allow []netip.Prefix
}

// Loopback is for servers on the same machine, as a local stack has them.
var Loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// embedded are prefixes of IPv6 that carry an IPv4 address, which is where packets
// end, and the byte that it begins at.
var embedded = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64 of one's own, as far as it has 96 bits
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated; the mapped ones, ::ffff:0:0/96, are unmapped before
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible; :: and ::1 are told before
}

var (
	thisHost  = netip.MustParsePrefix("0.0.0.0/8")
	reserved  = netip.MustParsePrefix("240.0.0.0/4") // broadcast, too
	teredo    = netip.MustParsePrefix("2001::/32")   // leads to an IPv4 address, by way of another
	services  = netip.MustParsePrefix("fd00:ec2::/32")
	metadata4 = []netip.Addr{
		netip.MustParseAddr("169.254.169.254"), // instances
		netip.MustParseAddr("169.254.170.2"),   // containers
		netip.MustParseAddr("169.254.170.23"),  // pods
	}
)

// Check is nil where ip may be connected to, else an ErrAddress that names what
// kind of address it is.
func (g Guard) Check(ip netip.Addr) error {
	ip = plain(ip)
	why, exact := judge(ip)
	if why == "" {
		return nil
	}
	for _, p := range g.Allow {
		if p.Contains(ip) && (!exact || p.IsSingleIP()) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", ErrAddress, why)
}

// plain is ip as it is routed: without a zone, and IPv4 where it is that in IPv6.
func plain(ip netip.Addr) netip.Addr {
	ip = ip.WithZone("").Unmap()
	if ip.Is4() || ip.IsLoopback() || ip.IsUnspecified() {
		return ip
	}
	for _, e := range embedded {
		if e.prefix.Contains(ip) {
			b := ip.As16()
			return netip.AddrFrom4([4]byte(b[e.at : e.at+4]))
		}
	}
	return ip
}

// judge says why ip is refused, "" if it isn't, and whether only its own prefix
// allows it all the same.
func judge(ip netip.Addr) (why string, exact bool) {
	switch {
	case !ip.IsValid():
		return "no IP address", false
	case services.Contains(ip):
		return "metadata", true
	case ip.IsLoopback():
		return "loopback", false
	case ip.IsUnspecified(), thisHost.Contains(ip):
		return "this host", false
	case ip.IsLinkLocalUnicast():
		for _, m := range metadata4 {
			if ip == m {
				return "metadata", true
			}
		}
		return "link-local", false
	case teredo.Contains(ip):
		return "a tunnel's", false
	case ip.IsMulticast(), reserved.Contains(ip):
		return "no host's", false
	}
	return "", false
}

// CheckHost is Check for the host of a URL as it is written, where that is an
// address or means this machine, as "" does: the fault is told before anything is sent,
// and behind a proxy, which looks names up itself, nobody else would tell it. Any other
// name passes. Addresses in a spelling that only some resolvers understand
// (127.1, 0x7f000001) are refused, and so are names that aren't ASCII: what they mean is
// told only when they are looked up (①27.0.0.1 is 127.0.0.1 by then). Such a host has a
// name in ASCII, too (xn--…).
func (g Guard) CheckHost(host string) error {
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return fmt.Errorf("%w: a name that isn't ASCII; write it as xn--…", ErrAddress)
	}
	name := strings.ToLower(strings.TrimRight(host, "."))
	if ip, err := netip.ParseAddr(name); err == nil {
		return g.Check(ip)
	}
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		if g.Check(netip.MustParseAddr("127.0.0.1")) == nil {
			return nil
		}
		return fmt.Errorf("%w: loopback", ErrAddress)
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last != "" && (strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")) {
		return fmt.Errorf("%w: no IP address", ErrAddress)
	}
	return nil
}

// control is a net.Dialer's: it sees the address that is about to be connected to,
// after every look-up, so that a name can't mean one address when it is checked and
// another when it is used.
func (g Guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: no IP address", ErrAddress)
	}
	return g.Check(at.Addr())
}

// NewGuardedClient is [NewClient] for connections that g allows. A proxy of the
// environment (HTTPS_PROXY) is connected to only if g allows its address, too; what
// lies behind it is the proxy's to refuse, but for what [Guard.CheckHost] sees.
func NewGuardedClient(connections int, g Guard) *http.Client {
	c := NewClient(connections)
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, ControlContext: g.control}
	c.Transport.(*http.Transport).DialContext = dialer.DialContext
	return c
}
