package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/config"
)

// tenantHouse is one whose environment names a table.
func tenantHouse(t *testing.T) *house {
	h := newHouse(t)
	h.env[config.EnvTable] = "t"
	return h
}

// acme is its record.
func (h *house) acme() access.Tenant {
	h.t.Helper()
	x, err := h.mem.Table.Tenants.Get(h.t.Context(), "acme")
	if err != nil {
		h.t.Fatal(err)
	}
	return x
}

func TestTenantCreate(t *testing.T) {
	h := tenantHouse(t)
	r := h.run("tenant", "create", "acme", "--running-batches", "20", "--file-bytes", "none").is(0, "Tenant acme created", "20 running batches")
	if x := h.acme(); r.stdout != "" || x.Limits != (access.Limits{RunningBatches: 20}) || x.Drop != nil || x.CreatedAt.IsZero() || x.Ver != 1 {
		t.Errorf("stored %+v, stdout %q", x, r.stdout)
	}
	h.run("tenant", "create", "acme").is(1, "has a record already", "tenant set")
	if x := h.acme(); x.Limits.RunningBatches != 20 || x.Ver != 1 {
		t.Errorf("a second create wrote: %+v", x)
	}
	h.run("tenant", "create", "beta").is(0, "limits: none")
	h.run("tenant", "create", "one", "--queued-lines=1", "--running-batches=1", "--file-bytes=1", "--requests-per-minute=1").
		is(0, "limits: 1 queued line, 1 running batch, 1 byte a file, 1 request a minute.")
}

func TestTenantSet(t *testing.T) {
	h := tenantHouse(t)
	h.run("tenant", "set", "acme", "--queued-lines", "1").is(1, "no record of a tenant acme", "tenant create acme")
	h.run("tenant", "create", "acme").is(0)
	h.run("tenant", "set", "acme", "--queued-lines", "1000000", "--running-batches", "3", "--file-bytes", "5000", "--requests-per-minute", "600").
		is(0, "1000000 queued lines, 3 running batches, 5000 bytes a file, 600 requests a minute")
	want := access.Limits{QueuedLines: 1_000_000, RunningBatches: 3, FileBytes: 5000, RequestsPerMinute: 600}
	if x := h.acme(); x.Limits != want {
		t.Errorf("%+v", x)
	}
	h.run("tenant", "set", "acme", "--running-batches", "0", "--requests-per-minute=none").is(0)
	want.RunningBatches, want.RequestsPerMinute = 0, 0
	if x := h.acme(); x.Limits != want || x.Ver != 3 {
		t.Errorf("what no flag names must stay, the rest go: %+v", x)
	}
	h.run("tenant", "set", "acme").is(2, "no limit is given", "--queued-lines")
	for _, bad := range []string{"-1", "1.5", "", "many", "1e6", "1000000000000001"} {
		h.run("tenant", "set", "acme", "--file-bytes", bad).is(2, "--file-bytes", "whole number up to 1000000000000000, or none")
	}
	if x := h.acme(); x.Ver != 3 {
		t.Errorf("a refused one wrote: %+v", x)
	}
}

func TestDrop(t *testing.T) {
	h := tenantHouse(t)
	r := h.run("tenant", "drop", "enable", "acme", "--principal", "nightly@acme.example").
		is(0, "had no record; it has one now", "from 5 s on at the latest", "in/acme/", "endpoint: the installation's first; window: the installation's first")
	first := h.acme()
	if d := first.Drop; r.stdout != "" || d == nil || d.Principal != "nightly@acme.example" || d.Endpoint != "" || d.Window != "" || d.Since.IsZero() {
		t.Fatalf("stored %+v, stdout %q", first.Drop, r.stdout)
	}
	h.run("tenant", "set", "acme", "--queued-lines", "7").is(0)
	r = h.run("tenant", "drop", "enable", "acme", "--principal", "bob", "--endpoint", "/v1/embeddings", "--window", "1h").is(0)
	if x := h.acme(); *x.Drop != (access.Drop{Principal: "bob", Endpoint: "/v1/embeddings", Window: "1h", Since: first.Drop.Since}) || x.Limits.QueuedLines != 7 {
		t.Errorf("stored %+v", x)
	}
	if strings.Contains(r.stderr, "had no record") {
		t.Errorf("stderr %q", r.stderr)
	}
	h.run("tenant", "drop", "disable", "acme").is(0, "Drop of acme: off, everywhere within 30 s.")
	if x := h.acme(); x.Drop != nil || x.Limits.QueuedLines != 7 {
		t.Errorf("stored %+v", x)
	}
	before := h.acme()
	h.run("tenant", "drop", "disable", "acme").is(0, "was off already")
	if x := h.acme(); x != before {
		t.Errorf("what changes nothing was written: %+v", x)
	}
	h.run("tenant", "drop", "disable", "beta").is(1, "no record of a tenant beta")
}

func TestDropRefusals(t *testing.T) {
	h := tenantHouse(t)
	enable := func(more ...string) []string {
		return append([]string{"tenant", "drop", "enable", "acme", "--principal", "ann"}, more...)
	}
	h.run("tenant", "drop", "enable", "acme").is(2, "required and not given: --principal\n", "See holdfast tenant drop enable --help.")
	h.run("tenant", "drop", "enable").is(2, "name a TENANT: holdfast tenant drop enable TENANT [flags]", "See holdfast tenant drop enable --help.")
	h.run("tenant", "drop", "enable", "A/B", "--principal", "a b", "--endpoint", "embeddings", "--window", "soon").
		is(2, "tenant: ", "principal: ", "endpoint: must be", "window: must be", "--help")
	// Of good form, and unknown here.
	h.run(enable("--endpoint", "/v1/other", "--window", "60m")...).
		is(2, "/v1/other is none of HOLDFAST_ENDPOINTS: /v1/", "60m is, as it is written, none of HOLDFAST_WINDOWS: 24h, 1h", "deployed with other")
	h.env["HOLDFAST_ENDPOINTS"], h.env["HOLDFAST_WINDOWS"] = "/v1/other", "60m"
	h.run(enable("--endpoint", "/v1/other", "--window", "60m")...).is(0)
	h.env["HOLDFAST_PART_LINES"] = "many"
	h.run(enable("--window", "60m")...).is(2, "settings", "HOLDFAST_PART_LINES")
	h.run(enable()...).is(0) // asks for nothing that the settings say
	delete(h.env, config.EnvTable)
	for _, args := range [][]string{enable(), {"tenant", "list"}, {"tenant", "show", "acme"}, {"tenant", "drop", "disable", "acme"}, {"tenant", "create", "b"}} {
		h.run(args...).is(2, config.EnvTable, ".local/env")
	}
}

// TestDropTakesWhatTheSettingsTake: no endpoint or window that a stack may be
// deployed with is refused for its form.
func TestDropTakesWhatTheSettingsTake(t *testing.T) {
	s := config.Default()
	for _, e := range s.Endpoints {
		if err := access.CheckEndpoint(e); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
	for window := range strings.SplitSeq("24h,1h,1s,168h,15s,90m,1h30m,10080m", ",") {
		_, err := config.Parse(func(name string) string {
			return map[string]string{"HOLDFAST_WINDOWS": window}[name]
		})
		if faults := fmt.Sprint(err); strings.Contains(faults, "is out of bounds") || access.CheckWindow(window) != nil {
			t.Errorf("%s: %v, %v", window, faults, access.CheckWindow(window))
		}
	}
}

func TestTenantShow(t *testing.T) {
	h := tenantHouse(t)
	h.run("tenant", "show", "acme").is(1, "the table t has no record of a tenant acme", "tenant list", "tenant create acme")
	h.run("tenant", "show", "Acme!").is(2, "tenant: must be")
	h.run("tenant", "create", "acme").is(0)
	r := h.run("tenant", "show", "acme").is(0)
	for _, want := range []string{"Tenant acme\n", "drop     off\n", "limits   none\n", "created  20"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, r.stdout)
		}
	}
	h.run("tenant", "drop", "enable", "acme", "--principal", "ann", "--window", "1h").is(0)
	if r := h.run("tenant", "show", "acme").is(0); !strings.Contains(r.stdout, "as ann; endpoint: the installation's first; window: 1h\n") {
		t.Errorf("%s", r.stdout)
	}
}

func TestTenantJSON(t *testing.T) {
	h := tenantHouse(t)
	type report struct {
		Tenant string
		Drop   *struct {
			Principal        string
			Endpoint, Window *string
			Since            time.Time
		}
		Limits    map[string]*int64
		CreatedAt time.Time `json:"created_at"`
		UpdatedAt time.Time `json:"updated_at"`
	}
	var r report
	h.run("tenant", "create", "acme", "--queued-lines", "5", "--json").is(0).object(&r)
	if r.Tenant != "acme" || r.Drop != nil || len(r.Limits) != 4 || r.Limits["queued_lines"] == nil || *r.Limits["queued_lines"] != 5 || r.Limits["file_bytes"] != nil {
		t.Errorf("%+v", r)
	}
	h.run("tenant", "drop", "enable", "acme", "--principal", "ann", "--window", "1h", "--json").is(0).object(&r)
	if r.Drop == nil || r.Drop.Principal != "ann" || r.Drop.Endpoint != nil || r.Drop.Window == nil || *r.Drop.Window != "1h" || r.Drop.Since.IsZero() {
		t.Errorf("%+v", r.Drop)
	}
	show := r
	h.run("tenant", "show", "acme", "--json").is(0).object(&show)
	if !show.CreatedAt.Equal(h.acme().CreatedAt) || !show.UpdatedAt.Equal(h.acme().UpdatedAt) {
		t.Errorf("%+v", show)
	}
	r = report{}
	h.run("tenant", "drop", "disable", "acme", "--json").is(0).object(&r)
	if r.Tenant != "acme" || r.Drop != nil {
		t.Errorf("%+v", r)
	}
	r = report{}
	h.run("tenant", "set", "acme", "--queued-lines", "0", "--json").is(0).object(&r)
	if r.Tenant != "acme" || r.Limits["queued_lines"] != nil {
		t.Errorf("%+v", r)
	}
	var list struct {
		Object string
		Data   []report
	}
	h.run("tenant", "list", "--json").is(0).object(&list)
	if list.Object != "list" || len(list.Data) != 1 || list.Data[0].Tenant != "acme" {
		t.Errorf("%+v", list)
	}
	var fault struct {
		Error struct{ Message, Hint string }
	}
	h.run("tenant", "show", "beta", "--json").is(1).object(&fault)
	if !strings.Contains(fault.Error.Message, "beta") || fault.Error.Hint == "" {
		t.Errorf("%+v", fault)
	}
}

func TestTenantListPages(t *testing.T) {
	h := tenantHouse(t)
	h.run("tenant", "list").is(0, "No tenant has a record.")
	const many = access.MaxTenants + 2
	for i := range many {
		x := access.Tenant{Name: fmt.Sprintf("t%05d", i), CreatedAt: time.Now(), UpdatedAt: time.Now()}
		if i == 1 {
			x.Drop = &access.Drop{Principal: "ann", Since: time.Now()}
		}
		if err := h.mem.Table.Tenants.Put(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	rows := strings.Split(strings.TrimSuffix(h.run("tenant", "list").is(0).stdout, "\n"), "\n")
	if len(rows) != many+1 || !strings.HasPrefix(rows[many], fmt.Sprintf("t%05d", many-1)) {
		t.Fatalf("%d rows, the last %q", len(rows), rows[len(rows)-1])
	}
	if got := strings.Join(strings.Fields(rows[1]), " ") + "; " + strings.Join(strings.Fields(rows[2]), " "); got != "t00000 off none; t00001 as ann none" {
		t.Errorf("%q", got)
	}
}

// brokenTenants fails every call.
type brokenTenants struct{ err error }

func (b brokenTenants) Get(context.Context, string) (access.Tenant, error) {
	return access.Tenant{}, b.err
}
func (b brokenTenants) Put(context.Context, access.Tenant) error { return b.err }
func (b brokenTenants) List(context.Context, string, int) ([]access.Tenant, bool, error) {
	return nil, false, b.err
}

// changing finds somebody else's write each time.
type changing struct{ access.Tenants }

func (changing) Put(context.Context, access.Tenant) error { return access.ErrChanged }

func TestTenantTrouble(t *testing.T) {
	h := tenantHouse(t)
	dial := fmt.Errorf("operation error: %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
	for name, c := range map[string]struct {
		store access.Tenants
		say   []string
	}{
		"down":        {brokenTenants{dial}, []string{"could not reach the endpoint of the table t", "AWS_ENDPOINT_URL"}},
		"denied":      {brokenTenants{errors.New("AccessDenied")}, []string{"in the table t: AccessDenied", "credentials"}},
		"newer":       {brokenTenants{batch.ErrNewer}, []string{"newer program", "release that is deployed"}},
		"interrupted": {brokenTenants{context.Canceled}, []string{"interrupted", "tenant list and show"}},
		"contended":   {changing{h.mem.Table.Tenants}, []string{"change the tenant acme", "others keep changing it", "Try again"}},
	} {
		t.Run(name, func(t *testing.T) {
			commands := [][]string{{"create", "acme"}, {"drop", "enable", "acme", "--principal", "ann"}, {"show", "acme"}, {"list"}}
			if name == "contended" {
				commands = commands[:2]
			}
			for _, args := range commands {
				var out, errs strings.Builder
				code := run(t.Context(), append([]string{"tenant"}, args...), &app{
					stdout: &out, stderr: &errs, now: time.Now, getenv: func(name string) string { return h.env[name] },
					tenants: func(context.Context, string) (access.Tenants, error) { return c.store, nil },
				})
				if r := (ran{t, code, out.String(), errs.String()}).is(1, c.say...); r.stdout != "" {
					t.Errorf("stdout %q", r.stdout)
				}
			}
		})
	}
}
