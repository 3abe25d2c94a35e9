package outbound

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		ip, why string // "": allowed
	}{
		{"93.184.216.34", ""},
		{"2606:2800:220:1::1", ""},
		{"10.0.0.7", ""},
		{"172.16.3.4", ""},
		{"192.168.1.1", ""},
		{"100.64.0.9", ""},
		{"fd12:3456::7", ""},
		{"fd00:ec3::254", ""},
		{"64:ff9b::5db8:d822", ""},
		{"127.0.0.1", "loopback"},
		{"127.255.255.254", "loopback"},
		{"::1", "loopback"},
		{"::ffff:127.0.0.1", "loopback"},
		{"::127.0.0.1", "loopback"},
		{"64:ff9b::7f00:1", "loopback"},
		{"2002:7f00:1::", "loopback"},
		{"::ffff:0:127.0.0.1", "loopback"},
		{"::ffff:0:10.0.0.7", ""},
		{"0.0.0.0", "this host"},
		{"0.1.2.3", "this host"},
		{"::", "this host"},
		{"::ffff:0.0.0.0", "this host"},
		{"169.254.1.2", "link-local"},
		{"169.254.171.1", "link-local"},
		{"::ffff:169.254.1.2", "link-local"},
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"febf::1", "link-local"},
		{"169.254.169.254", "metadata"},
		{"169.254.170.2", "metadata"},
		{"169.254.170.23", "metadata"},
		{"::ffff:169.254.169.254", "metadata"},
		{"64:ff9b::a9fe:a9fe", "metadata"},
		{"64:ff9b:1::a9fe:a9fe", "metadata"},
		{"2002:a9fe:a9fe::1", "metadata"},
		{"fd00:ec2::254", "metadata"},
		{"fd00:ec2::23", "metadata"},
		{"fd00:0ec2:0:0:0:0:0:254", "metadata"},
		{"::ffff:0:169.254.169.254", "metadata"},
		{"2001:0:5ef5:79fd:0:59d:56:1", "a tunnel's"},
		{"2001:0:4136:e378:8000:63bf:5601:5601", "a tunnel's"}, // 169.254.169.254
		{"2001:db8::1", ""},
		{"224.0.0.1", "no host's"},
		{"255.255.255.255", "no host's"},
		{"240.0.0.1", "no host's"},
		{"ff02::1", "no host's"},
	} {
		err := Guard{}.Check(netip.MustParseAddr(c.ip))
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.ip, err)
		case c.why != "" && (!errors.Is(err, ErrAddress) || !strings.HasSuffix(err.Error(), c.why) || strings.Contains(err.Error(), c.ip)):
			t.Errorf("%s: %v, want %s", c.ip, err, c.why)
		}
	}
	if err := (Guard{}).Check(netip.Addr{}); !errors.Is(err, ErrAddress) {
		t.Errorf("no address: %v", err)
	}
}

// What is configured is allowed, in whatever form it comes; a metadata address only
// by its own prefix.
func TestGuardAllows(t *testing.T) {
	for _, c := range []struct {
		allow, ip string
		ok        bool
	}{
		{"127.0.0.0/8", "127.0.0.1", true},
		{"127.0.0.0/8", "::ffff:127.0.0.1", true},
		{"127.0.0.0/8", "::1", false},
		{"::1/128", "::1", true},
		{"169.254.171.0/24", "169.254.171.9", true},
		{"169.254.171.0/24", "169.254.172.9", false},
		{"169.254.0.0/16", "169.254.1.1", true},
		{"169.254.0.0/16", "169.254.169.254", false},
		{"0.0.0.0/0", "169.254.170.2", false},
		{"169.254.169.254/32", "169.254.169.254", true},
		{"169.254.169.254/32", "64:ff9b::a9fe:a9fe", true},
		{"fd00:ec2::/32", "fd00:ec2::254", false},
		{"fd00:ec2::254/128", "fd00:ec2::254", true},
		{"fe80::/10", "fe80::1%eth0", true},
	} {
		err := Guard{Allow: []netip.Prefix{netip.MustParsePrefix(c.allow)}}.Check(netip.MustParseAddr(c.ip))
		if (err == nil) != c.ok {
			t.Errorf("%s with %s: %v", c.ip, c.allow, err)
		}
	}
}

func TestGuardHosts(t *testing.T) {
	for _, host := range []string{"models.example.com", "10.0.0.7", "fd12::7", "model", "a.b.c1", "host.0xyz.example", "xn--bcher-kva.example"} {
		if err := (Guard{}).CheckHost(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "::1", "", ".", "localhost", "LocalHost.", "localhost..", "127.0.0.1..", "a.localhost", "169.254.169.254", "169.254.169.254.", "127.1", "0177.0.0.1", "0x7f.1", "2130706433", "0x7f000001",
		"①27.0.0.1", "127。0。0。1", "ⓛocalhost", "ｌocalhost", "bücher.example", "\xff.example"} {
		if err := (Guard{}).CheckHost(host); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "::1", "localhost", "a.localhost", ""} {
		if err := (Guard{Allow: Loopback}).CheckHost(host); err != nil {
			t.Errorf("%s where loopback is allowed: %v", host, err)
		}
	}
}

// The connection itself is refused, whatever name led to it: nothing arrives.
func TestDialIsGuarded(t *testing.T) {
	reached := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer s.Close()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	named := "http://" + net.JoinHostPort("localhost", u.Port()) // resolved when it is dialled
	for _, at := range []string{s.URL, named} {
		resp, err := NewGuardedClient(1, Guard{}).Get(at)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, ErrAddress) || reached != 0 {
			t.Errorf("%s: %v, reached %d times", at, err, reached)
		}
	}
	resp, err := NewGuardedClient(1, Guard{Allow: Loopback}).Get(named)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if reached != 1 {
		t.Errorf("reached %d times", reached)
	}
}

// A proxy that is not allowed is not connected to either.
func TestProxyIsGuarded(t *testing.T) {
	reached := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer s.Close()
	proxy, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, allow := range [][]netip.Prefix{nil, Loopback} {
		c := NewGuardedClient(1, Guard{Allow: allow})
		c.Transport.(*http.Transport).Proxy = http.ProxyURL(proxy)
		resp, err := c.Get("http://models.example.com/")
		if err == nil {
			resp.Body.Close()
		}
		if refused := errors.Is(err, ErrAddress); refused == (allow != nil) {
			t.Errorf("allow %v: %v", allow, err)
		}
	}
	if reached != 1 {
		t.Errorf("the proxy was reached %d times", reached)
	}
}
