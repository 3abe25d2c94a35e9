package config

import (
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func workWith(more map[string]string) (Resources, error) {
	vars := maps.Clone(everything)
	maps.Copy(vars, more)
	return ParseResources(env(vars), Work)
}

func TestUpstreams(t *testing.T) {
	got, err := workWith(map[string]string{EnvUpstreams: `[
		{"models":["gpt-4*","o3"],"url":"https://api.openai.com/","secret":"holdfast/openai"},
		{"url":"http://10.0.0.7:8000/base","models":["meta-llama/Llama-3.3-70B:free"]}]`})
	if err != nil {
		t.Fatal(err)
	}
	want := []Upstream{
		{Models: []string{"gpt-4*", "o3"}, URL: "https://api.openai.com", Secret: "holdfast/openai"},
		{Models: []string{"meta-llama/Llama-3.3-70B:free"}, URL: "http://10.0.0.7:8000/base"},
	}
	if !reflect.DeepEqual(got.Upstreams, want) {
		t.Errorf("got %+v", got.Upstreams)
	}
	if all := got.AllUpstreams(); len(all) != 3 || all[2].URL != "https://models.example.com" || all[2].Models != nil {
		t.Errorf("all: %+v", all)
	}
	// Without a default, other models have no upstream.
	got, err = workWith(map[string]string{EnvUpstreamURL: "", EnvUpstreamSecret: "", EnvUpstreams: `[{"models":["*"],"url":"https://a.test"}]`})
	if err != nil || len(got.AllUpstreams()) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, role := range []Role{API, Plan, Finish, Reap, Ingest, CommandLine, Cost} {
		if role.Needs(EnvUpstreams) || role.Needs(EnvUpstreamAllow) {
			t.Errorf("%s is given what only those need who call models", role.Name)
		}
	}
}

// Each fault names its entry and its member, and no URL.
func TestUpstreamsRefuse(t *testing.T) {
	const good = `{"models":["a"],"url":"https://a.test"},`
	for text, say := range map[string]string{
		`{}`:   `must be a JSON array`,
		`x`:    `must be a JSON array`,
		`[1]`:  `entry 1: must be an object`,
		`[{}]`: `entry 1: url: must be`,
		`[` + good + `{"models":["b"],"url":"https://word:hidden@b.test"}]`:              `entry 2: url: must be`,
		`[` + good + `{"models":["b"],"url":"https://b.test/v1"}]`:                       `entry 2: url: must be`,
		`[` + good + `{"models":["b"],"url":7}]`:                                         `entry 2: url: must be a string`,
		`[` + good + `{"models":"b","url":"https://b.test"}]`:                            `entry 2: models: must be an array`,
		`[` + good + `{"models":[],"url":"https://b.test"}]`:                             `entry 2: models: must name one`,
		`[` + good + `{"url":"https://b.test"}]`:                                         `entry 2: models: must name one`,
		`[` + good + `{"models":["b",""],"url":"https://b.test"}]`:                       `entry 2: models: ""`,
		`[` + good + `{"models":["g*pt"],"url":"https://b.test"}]`:                       `entry 2: models: "g*pt"`,
		`[` + good + `{"models":["a b"],"url":"https://b.test"}]`:                        `entry 2: models: "a b"`,
		`[` + good + `{"models":["b","a"],"url":"https://b.test"}]`:                      `entry 2: models: "a" is in entry 1 already`,
		`[` + good + `{"models":["b"],"url":"https://b.test","secret":"arn:aws:x"}]`:     `entry 2: secret: must be the name`,
		`[` + good + `{"models":["b"],"url":"https://b.test","secret":"a/*"}]`:           `entry 2: secret: must be the name`,
		`[` + good + `{"models":["b"],"url":"https://b.test","Secret":"a"}]`:             `entry 2: "Secret": is not a member`,
		`[` + good + `{"models":["b"],"url":"https://b.test","key":"sk-hidden"}]`:        `entry 2: "key": is not a member`,
		`[` + good + `{"models":["b"],"url":"https://b.test","url":"https://c.test"}]`:   `entry 2: a member is there twice`,
		`[` + strings.Repeat(good, maxUpstreams) + `{"models":["b"],"url":"https://b"}]`: `33 entries; at most 32`,
		`[{"models":["` + strings.Repeat("b", maxUpstreamsBytes) + `"]}]`:                `bytes; a function's variables`,
	} {
		_, err := workWith(map[string]string{EnvUpstreams: text})
		if err == nil || !strings.HasPrefix(err.Error(), EnvUpstreams) || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%.80s: %v", text, err)
		}
	}
	// All faults at once, beside those of other variables.
	_, err := workWith(map[string]string{EnvTable: "", EnvUpstreams: `[{"models":[],"url":"x"},{"models":["b"],"url":"y"}]`})
	for _, say := range []string{EnvTable + " is missing", "entry 1: url", "entry 1: models", "entry 2: url"} {
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("no %q in %v", say, err)
		}
	}
	_, err = workWith(map[string]string{EnvUpstreamURL: "", EnvUpstreams: `[` + strings.TrimSuffix(good, ",") + `]`})
	if err == nil || !strings.Contains(err.Error(), "neither may be set without "+EnvUpstreamURL) {
		t.Errorf("a secret of no upstream: %v", err)
	}
}

func TestUpstreamAllow(t *testing.T) {
	got, err := workWith(map[string]string{EnvUpstreamAllow: "127.0.0.0/8, ::1,169.254.171.0/24,::ffff:10.0.0.1"})
	want := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("169.254.171.0/24"), netip.MustParsePrefix("10.0.0.1/32")}
	if err != nil || !reflect.DeepEqual(got.UpstreamAllow, want) {
		t.Errorf("%v, %v", got.UpstreamAllow, err)
	}
	for _, text := range []string{"localhost", "127.0.0.1/8", "127.1", "::ffff:127.0.0.0/104", "fe80::1%eth0", "127.0.0.0/8,,::1", "loopback", strings.Repeat("127.0.0.1,", 30) + "::1"} {
		if _, err := workWith(map[string]string{EnvUpstreamAllow: text}); err == nil || !strings.Contains(err.Error(), EnvUpstreamAllow) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

// What a function is given has room in its variables: Lambda takes 4 KB of names
// and values in all.
func TestEverythingFitsAFunction(t *testing.T) {
	n := maxUpstreamsBytes + len(EnvUpstreams) + maxAllowBytes + len(EnvUpstreamAllow)
	for name, value := range Default().Env() {
		n += len(name) + len(value)
	}
	t.Logf("%d bytes before the names of resources", n)
	if n > 4096-600 {
		t.Errorf("%d bytes before the names of resources", n)
	}
}
