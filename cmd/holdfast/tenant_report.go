package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// tenantReport is a tenant's record for scripts. null is: the door is off, the
// installation's first, no limit.
type tenantReport struct {
	Tenant    string       `json:"tenant"`
	Drop      *dropReport  `json:"drop"`
	Limits    limitsReport `json:"limits"`
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
}

type dropReport struct {
	Principal string    `json:"principal"`
	Endpoint  *string   `json:"endpoint"`
	Window    *string   `json:"window"`
	Since     time.Time `json:"since"`
}

type limitsReport struct {
	QueuedLines       *int64 `json:"queued_lines"`
	RunningBatches    *int64 `json:"running_batches"`
	FileBytes         *int64 `json:"file_bytes"`
	RequestsPerMinute *int64 `json:"requests_per_minute"`
}

// ObjectID is what a list goes on from.
func (r tenantReport) ObjectID() string { return r.Tenant }

func newTenantReport(t access.Tenant) tenantReport {
	r := tenantReport{
		Tenant: t.Name, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
		Limits: limitsReport{
			orNull(t.Limits.QueuedLines), orNull(int64(t.Limits.RunningBatches)), orNull(t.Limits.FileBytes), orNull(int64(t.Limits.RequestsPerMinute)),
		},
	}
	if d := t.Drop; d != nil {
		r.Drop = &dropReport{d.Principal, orNull(d.Endpoint), orNull(d.Window), d.Since}
	}
	return r
}

// orNull is nil for a zero v.
func orNull[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}

// answerTenant is what a command that changed t leaves on stdout.
func (a *app) answerTenant(t access.Tenant) error {
	if !a.json {
		return nil
	}
	return a.printJSON(newTenantReport(t))
}

func (a *app) answerTenants(all []access.Tenant) error {
	if a.json {
		reports := make([]tenantReport, len(all))
		for i, t := range all {
			reports[i] = newTenantReport(t)
		}
		return a.printJSON(openai.NewList(reports, false))
	}
	if len(all) == 0 {
		a.note("No tenant has a record.")
		return nil
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tDROP\tLIMITS")
	for _, t := range all {
		drop := "off"
		if t.Drop != nil {
			drop = "as " + t.Drop.Principal
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, drop, limitsText(t.Limits))
	}
	if err := w.Flush(); err != nil {
		return failed("", err, "can't print the table: %v", err)
	}
	return a.print("%s", printable(out.String()))
}

// tenantText is a record for a person.
func tenantText(t access.Tenant) string {
	var s strings.Builder
	row := func(name, text string) { fmt.Fprintf(&s, "  %-8s %s\n", name, printable(text)) }
	fmt.Fprintf(&s, "Tenant %s\n", printable(t.Name))
	row("created", t.CreatedAt.Format(time.RFC3339))
	row("changed", t.UpdatedAt.Format(time.RFC3339))
	row("drop", dropText(t.Drop))
	row("limits", limitsText(t.Limits))
	return s.String()
}

// dropText is a door for a person.
func dropText(d *access.Drop) string {
	if d == nil {
		return "off"
	}
	first := func(s string) string {
		if s == "" {
			return "the installation's first"
		}
		return s
	}
	return fmt.Sprintf("on since %s, as %s; endpoint: %s; window: %s", d.Since.Format(time.RFC3339), d.Principal, first(d.Endpoint), first(d.Window))
}
