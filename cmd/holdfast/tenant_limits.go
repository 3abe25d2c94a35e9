package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/internal/access"
)

const aboutLimits = `Limits are whole numbers; 0 or none is no limit of the tenant's own. They hold
within 30 s: 429 with retry-after for requests a minute, running batches and
queued lines, 413 for a file.`

func (a *app) tenantSet() *cobra.Command {
	var l limits
	c := &cobra.Command{
		Use: "set TENANT", Short: "Set a tenant's limits", Args: cobra.ExactArgs(1),
		Long: `Set limits of a tenant that has a record. What no flag names stays.

` + aboutLimits,
		Example: "  holdfast tenant set acme --queued-lines 1000000 --requests-per-minute none",
		RunE: func(c *cobra.Command, args []string) error {
			if !l.given() {
				return usage(seeHelp(c), "no limit is given: --queued-lines, --running-batches, --file-bytes or --requests-per-minute")
			}
			t, err := a.changeTenant(c.Context(), args[0], false, func(t *access.Tenant) error {
				l.apply(&t.Limits)
				return nil
			})
			if err != nil {
				return err
			}
			a.note("Limits of %s: %s.", t.Name, limitsText(t.Limits))
			return a.answerTenant(t)
		},
	}
	l.flags(c)
	return c
}

// limits are those that flags name.
type limits struct{ queuedLines, runningBatches, fileBytes, requestsPerMinute limit }

func (l *limits) flags(c *cobra.Command) {
	c.Flags().Var(&l.queuedLines, "queued-lines", "lines without a result in batches that aren't over, at most")
	c.Flags().Var(&l.runningBatches, "running-batches", "batches that aren't over, at most")
	c.Flags().Var(&l.fileBytes, "file-bytes", "bytes of one input file, at most")
	c.Flags().Var(&l.requestsPerMinute, "requests-per-minute", "requests a minute, at most")
}

func (l *limits) given() bool {
	return l.queuedLines.given || l.runningBatches.given || l.fileBytes.given || l.requestsPerMinute.given
}

// apply sets what was given.
func (l *limits) apply(to *access.Limits) {
	if l.queuedLines.given {
		to.QueuedLines = l.queuedLines.n
	}
	if l.runningBatches.given {
		to.RunningBatches = int(l.runningBatches.n)
	}
	if l.fileBytes.given {
		to.FileBytes = l.fileBytes.n
	}
	if l.requestsPerMinute.given {
		to.RequestsPerMinute = int(l.requestsPerMinute.n)
	}
}

// limit is a flag's value: a whole number, or none.
type limit struct {
	n     int64
	given bool
}

// String is the value as a person would give it; "" while none was given, so that
// help shows no default.
func (l *limit) String() string {
	switch {
	case !l.given:
		return ""
	case l.n == 0:
		return "none"
	}
	return strconv.FormatInt(l.n, 10)
}

// Set reads the flag.
func (l *limit) Set(s string) error {
	n, err := int64(0), error(nil)
	if s != "none" {
		n, err = strconv.ParseInt(s, 10, 64)
	}
	if err != nil || n < 0 || n > access.MaxLimit {
		return fmt.Errorf("must be a whole number up to %d, or none for no limit", int64(access.MaxLimit))
	}
	l.n, l.given = n, true
	return nil
}

// Type is what help calls the value.
func (l *limit) Type() string { return "N|none" }

// limitsText is limits for a person.
func limitsText(l access.Limits) string {
	var set []string
	for _, v := range []struct {
		n         int64
		one, many string
	}{
		{l.QueuedLines, "queued line", "queued lines"}, {int64(l.RunningBatches), "running batch", "running batches"},
		{l.FileBytes, "byte a file", "bytes a file"}, {int64(l.RequestsPerMinute), "request a minute", "requests a minute"},
	} {
		if v.n > 0 {
			set = append(set, number(v.n, v.one, v.many))
		}
	}
	if len(set) == 0 {
		return "none"
	}
	return strings.Join(set, ", ")
}
