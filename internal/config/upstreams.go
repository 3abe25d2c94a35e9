package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// Variables of the upstreams beside the one that answers every other model.
const (
	EnvUpstreams     = "HOLDFAST_UPSTREAMS"
	EnvUpstreamAllow = "HOLDFAST_UPSTREAM_ALLOW"
)

// Bounds of EnvUpstreams and EnvUpstreamAllow. A function's variables have 4 KB in
// all, of which the settings and the names of resources take about half.
const (
	maxUpstreams      = 32
	maxUpstreamsBytes = 1536
	maxAllowBytes     = 256
)

// EntryError is what is wrong with one upstream of EnvUpstreams.
type EntryError struct {
	Entry  int    // from 1; 0: the value as a whole
	Member string // "models", "url", "secret"; "" where it concerns none alone
	What   string
}

// Error names the variable, the entry and the member. It holds no URL: one with a
// password in it is among what is refused.
func (e *EntryError) Error() string {
	s := EnvUpstreams
	if e.Entry > 0 {
		s += fmt.Sprintf(": entry %d", e.Entry)
	}
	if e.Member != "" {
		s += ": " + e.Member
	}
	return s + ": " + e.What
}

// AllUpstreams are those that are chosen by a line's model, and behind them the one
// that answers for all other models, which has no Models, if there is one.
func (r Resources) AllUpstreams() []Upstream {
	all := slices.Clone(r.Upstreams)
	if r.Upstream.URL != "" {
		all = append(all, r.Upstream)
	}
	return all
}

// parseMore reads the variables of upstreams that are more than one string.
func (r *Resources) parseMore(getenv func(string) string, role Role) (faults []error) {
	if role.Needs(EnvUpstreams) {
		var err error
		if r.Upstreams, err = parseUpstreams(getenv(EnvUpstreams)); err != nil {
			faults = append(faults, err)
		}
	}
	if role.Needs(EnvUpstreamAllow) {
		var ok bool
		if r.UpstreamAllow, ok = parseAllow(getenv(EnvUpstreamAllow)); !ok {
			faults = append(faults, &Fault{Name: EnvUpstreamAllow, Value: getenv(EnvUpstreamAllow),
				Allowed: fmt.Sprintf("addresses and prefixes such as 127.0.0.0/8,::1, in %d bytes", maxAllowBytes)})
		}
	}
	if u := r.Upstream; role.Needs(EnvUpstreams) && u.URL == "" && (u.Secret != "" || u.Key != "") && getenv(EnvUpstreamURL) == "" && getenv(EnvUpstreams) != "" {
		faults = append(faults, &BrokenRelation{
			Values: EnvUpstreamSecret + ", " + EnvUpstreamKey,
			Rule:   "neither may be set without " + EnvUpstreamURL,
			Why:    "those of " + EnvUpstreams + " have secrets of their own",
		})
	}
	return faults
}

// parseUpstreams reads EnvUpstreams: a JSON array of
//
//	{"models":["gpt-4*","o3"],"url":"https://…","secret":"holdfast/openai"}
//
// where a model is a whole name, or the beginning of names and a *; secret may be
// absent. Other members are refused: one that is misspelt would be a secret that is
// never sent. The error joins an [*EntryError] for each fault.
func parseUpstreams(text string) ([]Upstream, error) {
	if text == "" {
		return nil, nil
	}
	whole := func(what string) error { return &EntryError{What: what} }
	if len(text) > maxUpstreamsBytes {
		return nil, whole(fmt.Sprintf("%d bytes; a function's variables have room for %d", len(text), maxUpstreamsBytes))
	}
	var entries []json.RawMessage
	if json.Unmarshal([]byte(text), &entries) != nil {
		return nil, whole(`must be a JSON array of {"models":[…],"url":"…","secret":"…"}`)
	}
	if len(entries) > maxUpstreams {
		return nil, whole(fmt.Sprintf("%d entries; at most %d", len(entries), maxUpstreams))
	}
	var (
		all    []Upstream
		faults []error
		taken  = map[string]int{}
	)
	for i, raw := range entries {
		fault := func(member, what string) {
			faults = append(faults, &EntryError{i + 1, member, what})
		}
		u, member, what := parseEntry(raw)
		if what != "" {
			fault(member, what)
			continue
		}
		if !baseURL(u.URL) {
			fault("url", "must be the http(s) base URL of an OpenAI-compatible service, without /v1, credentials or query")
		}
		if !secretName(u.Secret) {
			fault("secret", "must be the name of a Secrets Manager secret, and no ARN")
		}
		if len(u.Models) == 0 {
			fault("models", `must name one model at least; "*" is all of them`)
		}
		for _, m := range u.Models {
			if m == "" || strings.Contains(strings.TrimSuffix(m, "*"), "*") || strings.ContainsFunc(m, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
				fault("models", fmt.Sprintf("%q must be a name, or the beginning of names and a * behind it", m))
			} else if other, there := taken[m]; there {
				fault("models", fmt.Sprintf("%q is in entry %d already", m, other))
			}
			taken[m] = i + 1
		}
		u.URL = strings.TrimRight(u.URL, "/")
		all = append(all, u)
	}
	return all, errors.Join(faults...)
}

// parseEntry reads one entry; what says in words what is wrong with it, and member
// where.
func parseEntry(raw []byte) (u Upstream, member, what string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return u, "", "must be an object"
	}
	// In an order of its own, so that the same fault is told each time.
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	if twice(raw) {
		return u, "", "a member is there twice"
	}
	for _, name := range names {
		var err error
		switch name {
		case "models":
			err = json.Unmarshal(members[name], &u.Models)
			what = "must be an array of strings"
		case "url":
			err = json.Unmarshal(members[name], &u.URL)
			what = "must be a string"
		case "secret":
			err = json.Unmarshal(members[name], &u.Secret)
			what = "must be a string"
		default:
			return u, fmt.Sprintf("%q", name), "is not a member; there are models, url and secret"
		}
		if err != nil {
			return u, name, what
		}
	}
	return u, "", ""
}

// twice reports whether an object has a member twice, of which encoding/json would
// take the last.
func twice(raw []byte) bool {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	if _, err := d.Token(); err != nil {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return false
		}
		if s, _ := name.(string); seen[s] {
			return true
		} else {
			seen[s] = true
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil && err != io.EOF {
			return false
		}
	}
	return false
}

// parseAllow reads EnvUpstreamAllow: addresses and prefixes, separated by commas.
func parseAllow(text string) ([]netip.Prefix, bool) {
	if text == "" {
		return nil, true
	}
	if len(text) > maxAllowBytes {
		return nil, false
	}
	var all []netip.Prefix
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		if ip, err := netip.ParseAddr(one); err == nil && ip.Zone() == "" {
			all = append(all, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(one)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return nil, false
		}
		all = append(all, p)
	}
	return all, true
}
