package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

func (a *app) runCallsOfBatch(ctx context.Context, id, output string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if err := validBatch(id); err != nil {
		return err
	}
	return a.runCalls(ctx, c, receiptsPath(id)+"/gateway", url.Values{}, "for "+id, map[string]any{"batch_id": id}, output)
}

func (a *app) runCallsOfDay(ctx context.Context, day, output string) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return usage("Like this: --day 2026-10-12", "--day %q is no day", day)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.runCalls(ctx, c, "/v1/receipts", url.Values{"day": {day}}, "outside any batch on "+day, map[string]any{"day": day}, output)
}

// runCalls fetches a list of the gateway's receipts to its end; said becomes what --json
// prints.
func (a *app) runCalls(ctx context.Context, c *client, path string, query url.Values, what string, said map[string]any, output string) error {
	if a.json && output == "-" {
		return usage("Name a file: --output receipts.jsonl.", "--json and receipts can't share stdout")
	}
	calls := &calls{ctx: ctx, c: c, path: path, query: query}
	n, err := a.keep(calls, output)
	if err != nil {
		return c.trouble("fetch the receipts of the gateway's calls "+what, err)
	}
	lost := ""
	if calls.lost > 0 {
		lost = fmt.Sprintf("; of %d the end is not known (lost)", calls.lost)
	}
	a.note("%s %s%s.", number(calls.count, "call", "calls"), what, lost)
	if a.json {
		said["file"], said["bytes"], said["receipts"], said["lost"] = output, n, calls.count, calls.lost
		return a.printJSON(said)
	}
	return nil
}

// calls is a list of the gateway's receipts as lines of JSON, read page by page: a
// day's may be many.
type calls struct {
	ctx   context.Context
	c     *client
	path  string
	query url.Values

	text        bytes.Buffer
	ended       bool
	count, lost int
}

// Read implements io.Reader.
func (l *calls) Read(p []byte) (int, error) {
	for l.text.Len() == 0 {
		if l.ended {
			return 0, io.EOF
		}
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	return l.text.Read(p)
}

func (l *calls) next() error {
	l.query.Set("limit", strconv.Itoa(access.MaxReceipts))
	var page openai.List[access.ToldReceipt]
	if err := l.c.get(l.ctx, l.path+"?"+l.query.Encode(), &page); err != nil {
		return err
	}
	for _, r := range page.Data {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("receipt %s: %w", r.ID, err)
		}
		l.text.Write(append(line, '\n'))
		l.count++
		if r.Outcome == access.Lost {
			l.lost++
		}
	}
	if l.ended = !page.HasMore || page.LastID == nil; !l.ended {
		l.query.Set("after", *page.LastID)
	}
	return nil
}
