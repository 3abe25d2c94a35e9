package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status BATCH",
		Short: "Show a batch",
		Long:  "Show a batch. The exit status is 1 when it has failed, expired or was cancelled, else 0.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			b, err := c.batch(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(b)
			} else {
				err = a.print("%s", describe(b))
			}
			if err != nil {
				return err
			}
			return outcome(b)
		},
	}
}

// batch reads a batch by an id that a person typed.
func (c *client) batch(ctx context.Context, id string) (openai.Batch, error) {
	var b openai.Batch
	if err := validBatch(id); err != nil {
		return b, err
	}
	if err := c.get(ctx, "/v1/batches/"+id, &b); err != nil {
		err = c.trouble("look at "+id, err)
		if f, ok := errors.AsType[*failure](err); ok && unknownBatch(err) {
			f.hint += " One that was refused at a door never was a batch: holdfast events " + id
		}
		return b, err
	}
	return b, nil
}

// unknownBatch reports whether the API said that it knows no such batch.
func unknownBatch(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.Foreign == "" && e.Code == "batch_not_found"
}

// validBatch refuses what is no id of a batch.
func validBatch(id string) error {
	if !strings.HasPrefix(id, "batch_") || strings.ContainsAny(id, "/?#% ") {
		return usage("It begins with batch_, as submit prints it.", "%q is not the id of a batch", id)
	}
	return nil
}

// outcome is the exit status of a batch that everything was said about.
func outcome(b openai.Batch) error {
	if terminal(b.Status) && b.Status != openai.StatusCompleted {
		return &failure{exit: exitFailed, what: "batch " + b.ID + " is " + b.Status, shown: true}
	}
	return nil
}

// firstResults is how many lines of each file are shown.
const firstResults = 3

// conclude shows how a batch ended that was waited for.
func (a *app) conclude(ctx context.Context, c *client, b openai.Batch, took time.Duration) error {
	if a.json {
		if err := a.printJSON(b); err != nil {
			return err
		}
		return outcome(b)
	}
	if err := a.print("%s  took        %s\n", describe(b), lasted(b, took)); err != nil {
		return err
	}
	for _, f := range []struct {
		what string
		id   *string
	}{{"first results", b.OutputFileID}, {"first errors", b.ErrorFileID}} {
		if f.id == nil {
			continue
		}
		lines, err := c.head(ctx, *f.id, firstResults)
		if err != nil {
			return c.trouble("read "+*f.id, err)
		}
		if err := a.print("  %s\n    %s\n", f.what, strings.Join(lines, "\n    ")); err != nil {
			return err
		}
	}
	if b.OutputFileID != nil || b.ErrorFileID != nil {
		if err := a.print("  all of it   holdfast results %s --output out.jsonl --errors errors.jsonl\n", b.ID); err != nil {
			return err
		}
	}
	return outcome(b)
}

// lasted says how long a batch took, by the API's clock, which counts whole
// seconds, and by the caller's.
func lasted(b openai.Batch, waited time.Duration) string {
	s := lasting(waited.Round(10*time.Millisecond)) + " with the upload and the waiting"
	if end := ended(b); end != nil {
		s = lasting(time.Duration(*end-b.CreatedAt)*time.Second) + " from created to ended, " + s
	}
	return s
}

// ended is when a batch did, nil where it isn't known.
func ended(b openai.Batch) *int64 {
	for _, end := range []*int64{b.CompletedAt, b.FailedAt, b.ExpiredAt, b.CancelledAt} {
		if end != nil {
			return end
		}
	}
	return nil
}

// describe is a batch for a person to read.
func describe(b openai.Batch) string {
	var s strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&s, "  %-11s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&s, "Batch %s: %s\n", b.ID, b.Status)
	n := b.RequestCounts
	row("requests", "%d: %d completed, %d failed", n.Total, n.Completed, n.Failed)
	if b.LeaseExpired > 0 || b.DeadParts > 0 {
		row("crashes", "%s died at it: %s stolen, about %s repeated, %s dead", number(b.LeaseExpired, "worker", "workers"),
			number(b.Steals, "part", "parts"), number(b.Repeats, "line", "lines"), number(b.DeadParts, "part", "parts"))
	}
	row("endpoint", "%s", b.Endpoint)
	row("input", "%s", b.InputFileID)
	if b.OutputFileID != nil {
		row("output", "%s  (GET /v1/files/%[1]s/content)", *b.OutputFileID)
	}
	if b.ErrorFileID != nil {
		row("errors", "%s  (GET /v1/files/%[1]s/content)", *b.ErrorFileID)
	}
	row("created", "%s", time.Unix(b.CreatedAt, 0).UTC().Format(time.RFC3339))
	if end := ended(b); end != nil {
		row("ended", "%s", time.Unix(*end, 0).UTC().Format(time.RFC3339))
	}
	if !terminal(b.Status) && b.ExpiresAt != nil {
		row("expires", "%s", time.Unix(*b.ExpiresAt, 0).UTC().Format(time.RFC3339))
	}
	if b.Errors != nil && len(b.Errors.Data) > 0 {
		s.WriteString("  the input was refused; correct it and submit it again:\n")
		for _, e := range b.Errors.Data {
			where := "file"
			if e.Line != nil {
				where = fmt.Sprintf("line %d", *e.Line)
			}
			fmt.Fprintf(&s, "    %s: %s (%s)\n", where, printable(e.Message), printable(e.Code))
		}
		if n := len(b.Errors.Data); n >= batch.MaxErrors {
			fmt.Fprintf(&s, "    There may be more: the list stops at %d.\n", n)
		}
	}
	return s.String()
}

// head gives the first n lines of a result file, shortened for a terminal.
func (c *client) head(ctx context.Context, fileID string, n int) ([]string, error) {
	body, err := c.content(ctx, fileID)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var lines []string
	r := bufio.NewReader(body)
	for len(lines) < n {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			lines = append(lines, brief(line))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// brief is a result line as a person wants to see it.
func brief(line []byte) string {
	var r struct {
		CustomID string `json:"custom_id"`
		Response *struct {
			Status int             `json:"status_code"`
			Body   json.RawMessage `json:"body"`
		} `json:"response"`
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	switch {
	case json.Unmarshal(line, &r) != nil:
		return clip(string(line), 100)
	case r.Error != nil:
		return clip(fmt.Sprintf("%s  %s: %s", r.CustomID, r.Error.Code, r.Error.Message), 100)
	case r.Response != nil:
		return clip(fmt.Sprintf("%s  %d  %s", r.CustomID, r.Response.Status, r.Response.Body), 100)
	}
	return clip(r.CustomID, 100)
}

func clip(s string, most int) string {
	s = printable(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// printable keeps what other people wrote (ids, messages, replies) from
// steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// print writes to stdout.
func (a *app) print(format string, args ...any) error {
	if _, err := fmt.Fprintf(a.stdout, format, args...); err != nil {
		return failed("", err, "can't write to stdout: %v", err)
	}
	return nil
}
