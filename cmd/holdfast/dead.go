package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	"holdfast/internal/openai"
	"holdfast/internal/reap"
)

// dead is what an administrator does about parts that nobody runs any more. Its
// key needs the scope admin.
func (a *app) dead() *cobra.Command {
	cmd := &cobra.Command{Use: "dead", Short: "List, show and redrive dead parts", Args: cobra.NoArgs,
		Long: `A part is dead when it was claimed so many times in a row without progress
(HOLDFAST_MAX_ATTEMPTS) that nobody claims it any more. It waits for a redrive
(HOLDFAST_DEAD_GRACE); after that its lines end as part_dead and its batch goes on.

The key needs the scope admin, and sees its own tenant's parts.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	cmd.AddCommand(a.deadList(), a.deadShow(), a.deadRedrive())
	return cmd
}

func (a *app) deadList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List dead parts, those first that are sealed first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			parts, err := list[openai.BatchPart](cmd.Context(), c, "/v1/admin/dead", 0)
			if err != nil {
				return c.trouble("list dead parts", err)
			}
			if a.json {
				return a.printJSON(openai.NewList(parts, false))
			}
			for _, p := range parts {
				if err := a.print("%s  part %-6d %3d of %d lines open  sealed %s  %s\n", p.BatchID, p.Part, p.Lines-p.Processed, p.Lines,
					when(p.SealsAt), clip(p.LastError, 100)); err != nil {
					return err
				}
			}
			if len(parts) == 0 {
				a.note("No part is dead.")
			}
			return nil
		},
	}
}

func (a *app) deadShow() *cobra.Command {
	return &cobra.Command{
		Use: "show BATCH PART", Short: "Show a part", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if _, err := partNumber(args[1]); err != nil {
				return err
			}
			var p openai.BatchPart
			if err := c.get(cmd.Context(), "/v1/admin/dead/"+url.PathEscape(args[0])+"/"+args[1], &p); err != nil {
				return c.trouble("look at part "+args[1]+" of "+args[0], err)
			}
			return a.showPart(p)
		},
	}
}

func (a *app) deadRedrive() *cobra.Command {
	return &cobra.Command{
		Use: "redrive BATCH PART...", Short: "Bring dead parts back", Args: cobra.MinimumNArgs(2),
		Long: `Bring dead parts back: each begins anew, with all of its attempts. Results that
it has are kept. What killed it should be gone by then.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var numbers []int
			for _, arg := range args[1:] {
				n, err := partNumber(arg)
				if err != nil {
					return err
				}
				numbers = append(numbers, n)
			}
			var parts []openai.BatchPart
			for _, n := range numbers {
				body, err := json.Marshal(map[string]any{"batch_id": args[0], "part": n})
				if err != nil {
					return failed("", err, "redrive: %v", err)
				}
				var p openai.BatchPart
				// Once: a second one that finds the part alive would be told that it isn't dead.
				err = c.post(cmd.Context(), "/v1/admin/redrive", "application/json", bytes.NewReader(body), int64(len(body)), &p)
				if err != nil {
					return c.trouble(fmt.Sprintf("redrive part %d of %s", n, args[0]), err)
				}
				a.note("Part %d of %s is %s.", p.Part, p.BatchID, p.State)
				parts = append(parts, p)
			}
			if a.json {
				return a.printJSON(openai.NewList(parts, false))
			}
			return nil
		},
	}
}

// reclaim has the reaper look after the tenant now.
func (a *app) reclaim() *cobra.Command {
	return &cobra.Command{
		Use: "reclaim", Short: "Look after the tenant's batches now, as the reaper does each minute", Args: cobra.NoArgs,
		Long: `Give back the parts of workers that died, send again what was lost, end batches
that are past their window, and start what is gone: what the reaper does each
minute, now, for the tenant of the key, which needs the scope admin.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var sum reap.Report
			for {
				var report reap.Report
				// Doing it again does what is left, so that this can be patient.
				err := c.patiently(cmd.Context(), func() error {
					req, err := c.request(cmd.Context(), http.MethodPost, "/v1/admin/reclaim", nil)
					if err != nil {
						return backoff.Permanent(err)
					}
					return c.do(req, &report)
				})
				if err != nil {
					return c.trouble("reclaim", err)
				}
				if sum = sum.Plus(report); !report.More {
					break
				}
				a.note("%s so far", reclaimed(sum))
			}
			switch {
			case a.json:
				if err := a.printJSON(sum); err != nil {
					return err
				}
			default:
				if err := a.print("%s\n", reclaimed(sum)); err != nil {
					return err
				}
			}
			if sum.Failed > 0 {
				return failed("Try again in a moment; the reap function's log says what was wrong.", nil, "%s could not be dealt with", number(sum.Failed, "item", "items"))
			}
			return nil
		},
	}
}

// reclaimed is a report for a person.
func reclaimed(r reap.Report) string {
	var did []string
	for _, c := range []struct {
		n         int
		one, many string
	}{
		{r.Reaped, "part given back", "parts given back"}, {r.Resent, "message sent again", "messages sent again"},
		{r.Dead, "part declared dead", "parts declared dead"}, {r.Sealed, "part sealed", "parts sealed"},
		{r.Expired, "batch expired", "batches expired"}, {r.Started, "execution started again", "executions started again"},
		{r.Finished, "execution started to finish a batch", "executions started to finish a batch"},
		{r.Resubmitted, "stale claim submitted again", "stale claims submitted again"},
		{r.Refused, "stale claim refused and released", "stale claims refused and released"},
	} {
		if c.n > 0 {
			did = append(did, number(c.n, c.one, c.many))
		}
	}
	if len(did) == 0 {
		return "nothing to do"
	}
	return strings.Join(did, ", ")
}

func partNumber(arg string) (int, error) {
	n, err := strconv.ParseUint(arg, 10, 31)
	if err != nil {
		return 0, usage("Parts are counted from 0; holdfast dead list shows them.", "%q is not the number of a part", arg)
	}
	return int(n), nil
}

func (a *app) showPart(p openai.BatchPart) error {
	if a.json {
		return a.printJSON(p)
	}
	var s strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&s, "  %-11s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&s, "Part %d of %s: %s\n", p.Part, p.BatchID, p.State)
	row("lines", "%d from line %d (counted from 0); %d with a result", p.Lines, p.FirstLine, p.Processed)
	row("attempts", "%d since its last progress", p.Attempts)
	row("lapses", "%d, %d of them stolen", p.Lapses, p.Steals)
	if p.DeadAt != nil {
		row("dead", "since %s", when(p.DeadAt))
	}
	if p.SealsAt != nil {
		row("sealed", "%s, unless it is redriven: holdfast dead redrive %s %d", when(p.SealsAt), p.BatchID, p.Part)
	}
	if p.LastError != "" {
		row("last error", "%s", p.LastError)
	}
	return a.print("%s", s.String())
}

func when(seconds *int64) string {
	if seconds == nil {
		return "-"
	}
	return time.Unix(*seconds, 0).UTC().Format(time.RFC3339)
}
