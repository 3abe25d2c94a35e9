package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// local is what verify reads from disk; "" is fetched, or isn't there.
type local struct {
	receipts, output, errors, input string
	skipInput                       bool
}

func (l local) named() bool { return l.receipts+l.output+l.errors+l.input != "" }

func (a *app) receiptsVerify() *cobra.Command {
	var l local
	c := &cobra.Command{
		Use:   "verify [BATCH]",
		Short: "Check a batch's receipts against its results and its input",
		Long: `Check a batch's receipts against its results and its input.

Every line of the batch must be accounted for once: by a receipt and a result of
the same id, custom_id, status, tokens and reply, or by an error that says that the
line was not sent. Receipts must name one tenant, batch and submitter, and each
request must be its line of the input. Replies and requests are compared by their
SHA-256.

The files are fetched, but for those that are named: with all of them no API and no
BATCH is needed. The input of a batch may be gone by then, and --skip-input leaves it
out: the hashes of requests are not checked then, and that is said.

The exit status is 1 if anything is not as it should be; what, where, and how much of
it, is on stderr, and with --json on stdout.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				id = args[0]
			}
			return a.runVerify(cmd.Context(), id, l)
		},
	}
	c.Flags().StringVar(&l.receipts, "receipts", "", "file with the receipts, instead of fetching them")
	c.Flags().StringVar(&l.output, "output", "", "file with the lines that succeeded, instead of fetching it")
	c.Flags().StringVar(&l.errors, "errors", "", "file with the lines that failed, instead of fetching it")
	c.Flags().StringVar(&l.input, "input", "", "file with the requests, instead of fetching it")
	c.Flags().BoolVar(&l.skipInput, "skip-input", false, "don't check the hashes of requests")
	return c
}

// firstFaults is how many faults are shown.
const firstFaults = 20

func (a *app) runVerify(ctx context.Context, id string, l local) error {
	switch {
	case id == "" && !l.named():
		return usage("holdfast receipts verify BATCH; see holdfast receipts verify --help.", "name a BATCH, or files")
	case id == "" && (l.output == "" && l.errors == ""):
		return usage("Name them: --output FILE --errors FILE, and --receipts FILE.", "there are no results to check against")
	case l.skipInput && l.input != "":
		return usage("", "--input and --skip-input exclude each other")
	}
	s := sources{a: a, l: l}
	defer s.close()
	if id != "" {
		c, err := a.client()
		if err != nil {
			return err
		}
		if s.b, err = c.endedBatch(ctx, id); err != nil {
			return err
		}
		s.c = c
	}
	check, err := s.open(ctx)
	if err != nil {
		return err
	}
	var faults []batch.ReceiptFault
	check.Fault = func(f batch.ReceiptFault) {
		if len(faults) < firstFaults {
			faults = append(faults, f)
		}
	}
	report, err := check.Run(ctx)
	s.bar.finish()
	if err != nil {
		return s.trouble("check the receipts", err)
	}
	return a.verdict(s, report, faults)
}

// verdict says what the check came to: last in one line.
func (a *app) verdict(s sources, r batch.ReceiptReport, faults []batch.ReceiptFault) error {
	if a.json {
		out := struct {
			OK bool `json:"ok"`
			batch.ReceiptReport
			First []batch.ReceiptFault `json:"first_faults,omitempty"`
		}{r.OK(), r, faults}
		if err := a.printJSON(out); err != nil {
			return err
		}
	}
	for _, f := range faults {
		where := s.name(f.File)
		if f.Line > 0 {
			where = fmt.Sprintf("%s, line %d", where, f.Line)
		}
		a.note("%s", printable(fmt.Sprintf("%s: %s", where, f.What)))
	}
	if more := r.Faults - int64(len(faults)); more > 0 {
		a.note("and %d more", more)
	}
	switch {
	case r.Requests:
	case s.l.skipInput:
		a.note("The hashes of requests were not checked: you left the input out.")
	default:
		a.note("The hashes of requests were not checked: there was no input.")
	}
	of := r.Batch
	if of == "" {
		of = "the batch"
	}
	if !r.OK() {
		text := fmt.Sprintf("%s: the receipts do NOT agree with the results: %s in %s", of, number(r.Faults, "fault", "faults"), number(r.Lines, "line", "lines"))
		if r.Stopped {
			text += "; what is behind the last one was not checked"
		}
		a.note("%s", printable(text))
		return &failure{exit: exitFailed, what: text, shown: true}
	}
	if a.json {
		return nil
	}
	who := ""
	if r.OnBehalfOf != "" {
		who = " on behalf of " + r.OnBehalfOf
	}
	return a.print("%s", printable(fmt.Sprintf("%s: %s, each accounted for once: %d with a receipt%s, %d not sent\n", of, number(r.Lines, "line", "lines"), r.Receipts, who, r.Unsent)))
}

// sources is where the files come from.
type sources struct {
	a      *app
	c      *client // nil: from disk only
	b      openai.Batch
	l      local
	bar    *bar
	opened []io.Closer
}

func (s *sources) close() {
	for _, c := range s.opened {
		c.Close()
	}
}

// name is what a person calls a file.
func (s *sources) name(kind string) string {
	path := map[string]string{batch.ReceiptsFile: s.l.receipts, batch.OutputFile: s.l.output, batch.ErrorFile: s.l.errors, batch.InputFile: s.l.input}[kind]
	if path != "" {
		return path
	}
	return kind
}

func (s *sources) trouble(doing string, err error) error {
	if s.c == nil {
		return failed("", err, "%s: %v", doing, err)
	}
	return s.c.trouble(doing, err)
}

// open opens all files.
func (s *sources) open(ctx context.Context) (batch.ReceiptCheck, error) {
	check := batch.ReceiptCheck{Batch: s.b.ID, Endpoint: s.b.Endpoint}
	input := &s.b.InputFileID
	if s.l.skipInput {
		input = nil
	}
	if s.c != nil {
		n := s.b.RequestCounts
		check.Counts = &batch.Counts{Total: int64(n.Total), Completed: int64(n.Completed), Failed: int64(n.Failed)}
	}
	var receipts *string // a path, as the others are
	if s.c != nil {
		path := receiptsPath(s.b.ID)
		receipts = &path
	}
	for _, f := range []struct {
		into *io.Reader
		disk string
		path *string
		miss func(error) bool // it may be gone
	}{
		{&check.Receipts, s.l.receipts, receipts, none},
		{&check.Output, s.l.output, s.content(s.b.OutputFileID), nil},
		{&check.Errors, s.l.errors, s.content(s.b.ErrorFileID), nil},
		{&check.Input, s.l.input, s.content(input), gone},
	} {
		r, err := s.one(ctx, f.disk, f.path, f.miss)
		if err != nil {
			return check, err
		}
		if r != nil {
			*f.into = r
		}
	}
	s.watch(&check)
	return check, nil
}

// content is the path of a file that may not be there.
func (s *sources) content(fileID *string) *string {
	if s.c == nil || fileID == nil {
		return nil
	}
	path := contentPath(*fileID)
	return &path
}

// one opens a file; nil: there is none.
func (s *sources) one(ctx context.Context, disk string, path *string, miss func(error) bool) (io.Reader, error) {
	if disk != "" {
		f, err := os.Open(disk)
		if err != nil {
			return nil, failed("", err, "can't read %s: %v", disk, err)
		}
		s.opened = append(s.opened, f)
		return f, nil
	}
	if path == nil {
		return nil, nil
	}
	body, err := s.c.steady(ctx, *path)
	if err != nil {
		if miss != nil && miss(err) {
			return nil, nil
		}
		return nil, s.c.trouble("fetch the files of "+s.b.ID, err)
	}
	s.opened = append(s.opened, body)
	return body, nil
}

// gone reports whether the API said that there is no such file any more.
func gone(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.Code == "file_not_found"
}

// watch shows how far the check is: by lines where the batch says how many there
// are, else by the bytes of the largest file on disk.
func (s *sources) watch(check *batch.ReceiptCheck) {
	if n := int64(s.b.RequestCounts.Total); n > 0 {
		s.bar = s.a.newBar("checking", n, false)
		check.Progress = func(lines int64) { s.bar.set("checking", lines) }
		return
	}
	var largest *io.Reader
	var most int64
	for _, r := range []*io.Reader{&check.Receipts, &check.Output, &check.Errors} {
		f, ok := (*r).(*os.File)
		if !ok {
			continue
		}
		if info, err := f.Stat(); err == nil && info.Size() > most {
			largest, most = r, info.Size()
		}
	}
	if largest != nil {
		s.bar = s.a.newBar("checking", most, true)
		*largest = s.bar.reader("checking", *largest)
	}
}
