package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"holdfast/internal/openai"
)

func (a *app) receipts() *cobra.Command {
	var output, day string
	var byGateway bool
	c := &cobra.Command{
		Use:   "receipts BATCH",
		Short: "Fetch the receipts of a batch or of the gateway, or check a batch's against its results",
		Long: `Fetch the receipts of a batch that has ended: one JSON object a line, in input
order, for each line that a worker made a result of. It says on whose behalf the
line was replayed, when, by which worker, at which try, with which model, status
and tokens, and the SHA-256 of request and reply; never what they were.

They go to stdout, or with --output to a file, which is complete or not there.
With --json, which needs --output, one object on stdout says how many bytes.

A line that was cancelled or expired before it had a result, or whose part was
dead, has no receipt: its error says so.

With --gateway they are those of the calls that the gateway made for the batch, which
may run still; with --day those of its calls outside any batch on that day (UTC). They say
which key was shown, too. One with the outcome "lost" is of a call that may have been
made, and whose end nobody recorded.`,
		Example: "  holdfast receipts batch_… --output receipts.jsonl\n  holdfast receipts --gateway batch_…\n  holdfast receipts --day 2026-10-12",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case day != "" && (byGateway || len(args) > 0):
				return usage("", "--day is for the gateway's calls outside any batch: name neither a batch nor --gateway")
			case day != "":
				return a.runCallsOfDay(cmd.Context(), day, output)
			case len(args) == 0:
				return usage(seeHelp(cmd), "name a BATCH, or a --day")
			case byGateway:
				return a.runCallsOfBatch(cmd.Context(), args[0], output)
			}
			return a.runReceipts(cmd.Context(), args[0], output)
		},
	}
	c.Flags().StringVar(&output, "output", "-", "file for the receipts (- for stdout)")
	c.Flags().BoolVar(&byGateway, "gateway", false, "those of the gateway's calls for the batch")
	c.Flags().StringVar(&day, "day", "", "those of the gateway's calls outside any batch on this day (2026-10-12, UTC)")
	c.AddCommand(a.receiptsVerify())
	return c
}

func (a *app) runReceipts(ctx context.Context, id, output string) error {
	if a.json && output == "-" {
		return usage("Name a file: --output receipts.jsonl.", "--json and receipts can't share stdout")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	b, err := c.endedBatch(ctx, id)
	if err != nil {
		return err
	}
	body, err := c.steady(ctx, receiptsPath(b.ID))
	if none(err) {
		return failed("Which lines were not sent, and why: holdfast results "+b.ID+" --errors FILE", err,
			"batch %s is %s and has no receipts: no line of it was sent, or it is too old", b.ID, b.Status)
	}
	if err != nil {
		return c.trouble("fetch the receipts of "+b.ID, err)
	}
	defer body.Close()
	n, err := a.keep(body, output)
	if err != nil {
		return c.trouble("fetch the receipts of "+b.ID, err)
	}
	if output != "-" {
		a.note("%s: %s. Check them: holdfast receipts verify %s", output, number(n, "byte", "bytes"), b.ID)
	}
	if a.json {
		return a.printJSON(map[string]any{"batch_id": b.ID, "file": output, "bytes": n})
	}
	return nil
}

func receiptsPath(id string) string { return "/v1/batches/" + id + "/receipts" }

// endedBatch reads a batch that must be over, and must have been run.
func (c *client) endedBatch(ctx context.Context, id string) (openai.Batch, error) {
	b, err := c.batch(ctx, id)
	switch {
	case err != nil:
		return b, err
	case !terminal(b.Status):
		n := b.RequestCounts
		return b, failed("Receipts are there when it has ended; see holdfast status "+b.ID, nil,
			"batch %s is %s: %d of %s done", b.ID, b.Status, n.Completed+n.Failed, number(n.Total, "request", "requests"))
	case b.Status == openai.StatusFailed:
		return b, failed("See the reasons: holdfast status "+b.ID, nil, "batch %s is %s: no line of it was run, so there are no receipts", b.ID, b.Status)
	}
	return b, nil
}

// none reports whether the API said that there are no receipts.
func none(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.Status == http.StatusNotFound && e.Code == "receipts_not_found"
}

// steady is a download that takes longer than a connection or a link may last: when
// it is torn it goes on where it was, with a new link.
type steady struct {
	ctx   context.Context
	c     *client
	path  string
	body  io.ReadCloser
	at    int64
	tears int // in a row, without a byte between them
}

// steady opens what the path hands out.
func (c *client) steady(ctx context.Context, path string) (*steady, error) {
	body, err := c.open(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	return &steady{ctx: ctx, c: c, path: path, body: body}, nil
}

// Read implements io.Reader. An error other than io.EOF is final.
func (s *steady) Read(p []byte) (int, error) {
	for {
		n, err := s.body.Read(p)
		s.at += int64(n)
		if n > 0 {
			s.tears = 0
			return n, nil // an error comes again
		}
		if err == nil || err == io.EOF || s.ctx.Err() != nil {
			return 0, err
		}
		if s.tears++; s.tears >= readTries {
			return 0, fmt.Errorf("torn %d times in a row: %w", s.tears, err)
		}
		s.body.Close()
		if s.body, err = s.c.open(s.ctx, s.path, s.at); err != nil {
			s.body = http.NoBody
			return 0, err
		}
	}
}

// Close implements io.Closer.
func (s *steady) Close() error { return s.body.Close() }
