package main

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
)

// upstreamURLs are the base URLs of all upstreams.
func (o options) upstreamURLs() (all []*url.URL) {
	for _, u := range o.allUpstreams() {
		if parsed, err := url.Parse(u.URL); err == nil && u.URL != "" {
			all = append(all, parsed)
		}
	}
	return all
}

// upstreamPort is where an upstream listens: at this address, or if that is not valid
// at any that its name may mean.
type upstreamPort struct {
	address netip.Addr
	port    uint16
}

// upstreamPorts are those of upstreams at other ports than 443, each once.
func (o options) upstreamPorts() (all []upstreamPort) {
	for _, u := range o.upstreamURLs() {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			port = map[string]uint64{"http": 80, "https": 443}[u.Scheme]
		}
		address, _ := netip.ParseAddr(u.Hostname())
		if address = address.Unmap(); !address.Is4() {
			address = netip.Addr{}
		}
		if at := (upstreamPort{address, uint16(port)}); port != 443 && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}
