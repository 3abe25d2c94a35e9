package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/internal/openai"
)

func (a *app) results() *cobra.Command {
	var output, errorsTo string
	c := &cobra.Command{
		Use:   "results BATCH",
		Short: "Fetch the results of a batch that has ended",
		Long: `Fetch the results of a batch that has ended.

Without flags the lines of the output file and then those of the error file go
to stdout. With --output or --errors only what is named is fetched; - is
stdout. A file is complete or not there: it is written beside its place and
renamed. A batch without lines of that kind gives an empty file; one whose input
was refused gives none.

With --json, which needs --output or --errors, the batch is printed on stdout
and says by output_file_id and error_file_id what there was.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runResults(cmd.Context(), args[0], output, errorsTo)
		},
	}
	c.Flags().StringVar(&output, "output", "", "file for the lines that succeeded (- for stdout)")
	c.Flags().StringVar(&errorsTo, "errors", "", "file for the lines that failed (- for stdout)")
	return c
}

func (a *app) runResults(ctx context.Context, id, output, errorsTo string) error {
	switch {
	case output == "" && errorsTo == "" && a.json, a.json && (output == "-" || errorsTo == "-"):
		return usage("Name files for both: --output out.jsonl --errors errors.jsonl.", "--json and results can't share stdout")
	case output == "" && errorsTo == "":
		output, errorsTo = "-", "-"
	case output == errorsTo && output != "-":
		return usage("", "--output and --errors name one file")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	b, err := c.batch(ctx, id)
	if err != nil {
		return err
	}
	if !terminal(b.Status) {
		n := b.RequestCounts
		return failed("Results are there when it has ended; see holdfast status "+b.ID, nil,
			"batch %s is %s: %d of %s done", b.ID, b.Status, n.Completed+n.Failed, number(n.Total, "request", "requests"))
	}
	if b.OutputFileID == nil && b.ErrorFileID == nil && b.Errors != nil && len(b.Errors.Data) > 0 {
		return failed("See the reasons, line by line: holdfast status "+b.ID+". Correct the input and submit it again.", nil,
			"batch %s is %s: its input was refused before a line was run, so there are no results: %s", b.ID, b.Status, b.Errors.Data[0].Message)
	}
	for _, f := range []struct {
		to string
		id *string
	}{{output, b.OutputFileID}, {errorsTo, b.ErrorFileID}} {
		if f.to == "" {
			continue
		}
		n, err := a.fetch(ctx, c, f.id, f.to)
		if err != nil {
			return c.trouble("fetch the results of "+b.ID, err)
		}
		if f.to != "-" {
			a.note("%s: %s", f.to, number(n, "byte", "bytes"))
		}
	}
	a.noteFailed(b, output, errorsTo)
	if a.json {
		if err := a.printJSON(b); err != nil {
			return err
		}
	}
	if b.Status != openai.StatusCompleted {
		if b.OutputFileID == nil && b.ErrorFileID == nil {
			return failed("See why: holdfast status "+b.ID, nil, "batch %s is %s; it has no results", b.ID, b.Status)
		}
		return failed("See why: holdfast status "+b.ID, nil, "batch %s is %s; what it had finished was fetched", b.ID, b.Status)
	}
	return nil
}

// noteFailed says which lines failed where a person could miss them: not fetched,
// or on stdout behind those that succeeded.
func (a *app) noteFailed(b openai.Batch, output, errorsTo string) {
	if b.ErrorFileID == nil || errorsTo != "" && (output != "-" || errorsTo != "-") {
		return
	}
	lines := fmt.Sprintf("%d of %s", b.RequestCounts.Failed, number(b.RequestCounts.Total, "line", "lines"))
	if errorsTo == "" {
		a.note("%s failed and were not fetched. Fetch them: holdfast results %s --errors FILE", lines, b.ID)
		return
	}
	a.note("%s failed: stdout has the output lines, then the error lines. Fetch them apart: holdfast results %s --output FILE --errors FILE", lines, b.ID)
}

// fetch streams a file to where a person wants it, and gives its size.
func (a *app) fetch(ctx context.Context, c *client, fileID *string, to string) (n int64, err error) {
	var body io.ReadCloser = io.NopCloser(eof{})
	if fileID != nil {
		if body, err = c.content(ctx, *fileID); err != nil {
			return 0, err
		}
	}
	defer body.Close()
	return a.keep(body, to)
}

// keep writes what is read to where a person wants it, and gives its size.
func (a *app) keep(body io.Reader, to string) (n int64, err error) {
	if to == "-" {
		return io.Copy(a.stdout, body)
	}
	// Beside the place and not in a temporary folder: a rename within one file
	// system is whole or nothing.
	tmp, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return 0, failed("", err, "can't write %s: %v", to, err)
	}
	defer func() {
		if err != nil {
			tmp.Close()
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if n, err = io.Copy(tmp, body); err != nil {
		return n, err
	}
	if err = errors.Join(tmp.Chmod(0o644), tmp.Sync()); err != nil {
		return n, failed("", err, "can't write %s: %v", to, err)
	}
	if err = tmp.Close(); err != nil {
		return n, failed("", err, "can't write %s: %v", to, err)
	}
	if err = os.Rename(tmp.Name(), to); err != nil {
		return n, failed("", err, "can't write %s: %v", to, err)
	}
	return n, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
