package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/openai"
)

// pageOf is how many of a list are asked for at once.
const pageOf = 100

func (a *app) events() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "events BATCH",
		Short: "Show what happened to a batch, oldest first",
		Long: `Show what happened to a batch and its parts, oldest first: claims, leases
that expired, parts that were given back, stolen, declared dead, redriven or sealed,
models whose circuit opened, executions that were started again, how its ending was
decided.

It is a log for people. Events are written after the fact and may be missing;
counts come from "holdfast status".`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if most < 0 {
				return usage("", "--limit must not be negative")
			}
			events, err := list[openai.BatchEvent](cmd.Context(), c, "/v1/batches/"+url.PathEscape(args[0])+"/events", most)
			if err != nil {
				return c.trouble("read the events of "+args[0], err)
			}
			// The API's order is that of ids, of which one may stand for ten minutes.
			slices.SortStableFunc(events, func(a, b openai.BatchEvent) int { return timeOf(a).Compare(timeOf(b)) })
			if a.json {
				return a.printJSON(openai.NewList(events, false))
			}
			for _, e := range events {
				if err := a.print("%s\n", event(e)); err != nil {
					return err
				}
			}
			if len(events) == 0 {
				a.note("Nothing worth telling happened to %s.", printable(args[0]))
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&most, "limit", 0, "show at most so many; 0: all")
	return cmd
}

// timeOf is when the event was; zero where its time is none.
func timeOf(e openai.BatchEvent) time.Time {
	t, err := time.Parse(time.RFC3339Nano, e.Time)
	if err != nil {
		return time.Time{}
	}
	return t
}

// event is one line for a person.
func event(e openai.BatchEvent) string {
	at := e.Time
	if t := timeOf(e); !t.IsZero() {
		at = t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	of := "batch"
	if e.Part != nil {
		of = "part " + strconv.Itoa(*e.Part)
	}
	s := fmt.Sprintf("%s  %-10s %-14s", at, of, e.Kind)
	if e.Attempt > 0 {
		s += fmt.Sprintf("  attempt %d", e.Attempt)
	}
	if e.Owner != "" {
		s += "  owner " + clip(e.Owner, 12)
	}
	if e.Reason != "" {
		s += "  " + e.Reason
	}
	return printable(s)
}

// list reads a list to its end, or until it has most (0: all).
func list[T openai.Identified](ctx context.Context, c *client, path string, most int) (all []T, err error) {
	query := url.Values{}
	for {
		limit := pageOf
		if most > 0 {
			limit = min(limit, most-len(all))
		}
		query.Set("limit", strconv.Itoa(limit))
		var page openai.List[T]
		if err := c.get(ctx, path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if !page.HasMore || page.LastID == nil || most > 0 && len(all) >= most {
			return all, nil
		}
		query.Set("after", *page.LastID)
	}
}
