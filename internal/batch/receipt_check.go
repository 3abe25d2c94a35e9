package batch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// ReceiptCheck is a batch's receipts and what they are checked against. Each file is
// read once, forward, and a line of each is held: memory doesn't grow with them.
type ReceiptCheck struct {
	Receipts io.Reader
	Output   io.Reader // nil: the batch has no such file
	Errors   io.Reader // nil: the batch has no such file
	Input    io.Reader // nil: request hashes are not checked

	Batch    string  // its id; "": that of the first receipt
	Endpoint string  // of the input's lines; "": that of the first
	Counts   *Counts // what the batch says that it has; nil: it isn't asked

	Fault    func(ReceiptFault) // called for each; nil: they are only counted
	Progress func(lines int64)  // called now and then; nil: nobody is told
}

// ReceiptFault is one thing that is not as it should be.
type ReceiptFault struct {
	File string `json:"file"` // ReceiptsFile, OutputFile, ErrorFile, InputFile, "batch"
	Line int64  `json:"line"` // physical line of that file, from 1; 0: the file as a whole
	What string `json:"what"` // may hold what others wrote, such as a custom_id
}

// InputFile is what a ReceiptFault calls the batch's input.
const InputFile = "input"

// ReceiptReport is what a check came to.
type ReceiptReport struct {
	Batch      string `json:"batch_id"`
	Tenant     string `json:"tenant"`
	OnBehalfOf string `json:"on_behalf_of"`
	Lines      int64  `json:"lines"`    // accounted for: Receipts + Unsent
	Receipts   int64  `json:"receipts"` // lines that have one, and a result that is its own
	Unsent     int64  `json:"unsent"`   // lines without one, whose error says that they have none
	Output     int64  `json:"output_lines"`
	Errors     int64  `json:"error_lines"`
	Faults     int64  `json:"faults"`
	Stopped    bool   `json:"stopped"` // at a fault behind which nobody can tell which lines belong together
	// Requests says that the hashes of requests were checked, against the input.
	Requests bool `json:"request_hashes_checked"`
}

// OK reports whether everything was checked and is as it should be.
func (r ReceiptReport) OK() bool { return r.Faults == 0 && !r.Stopped }

// Run merges the files, which are in input order, and checks that every line of the
// batch is accounted for exactly once:
//
//   - by a receipt and a result of the same id and custom_id, in the file that its
//     status sends it to, with the hash of the reply that is kept there (see
//     [Receipt]) and its tokens; or
//   - by an error that says that it was given up unsent ([openai.Unsent]), and no
//     receipt: which of two lines that is, their places tell, because a receipt has its
//     line's number;
//   - tenant, batch and submitter are the same everywhere, and
//   - with the input, each line is its line of it, with the hash of its body.
//
// What can't be told apart from honest files without more than this: a receipt whose
// time, worker, attempt or model was altered, a result with another request_id or another
// error of the kind that its line may have, and a reply that reached the worker with white
// space that isn't kept (kept_sha256 is then what is checked).
//
// The error is the first of a reader, or of ctx; faults are no error.
func (c ReceiptCheck) Run(ctx context.Context) (ReceiptReport, error) {
	m := receiptMerge{c: c, report: ReceiptReport{Batch: c.Batch, Requests: c.Input != nil}}
	m.receipts = newLineFile(ReceiptsFile, c.Receipts)
	m.output, m.errors = resultLines{file: newLineFile(OutputFile, c.Output)}, resultLines{file: newLineFile(ErrorFile, c.Errors)}
	if c.Input != nil {
		m.input = &inputLines{endpoint: c.Endpoint, r: openai.NewReader(c.Input, openai.Limits{LineBytes: maxLineBytes})}
	}
	err := m.run(ctx)
	return m.report, err
}

// receiptMerge is a check under way. The next line of each file is at hand.
type receiptMerge struct {
	c        ReceiptCheck
	receipts *lineFile
	receipt  *Receipt // nil: there is none left
	output   resultLines
	errors   resultLines
	input    *inputLines
	report   ReceiptReport
	known    bool // tenant and submitter are the first receipt's
}

// fault notes what is wrong with the line at hand of a file.
func (m *receiptMerge) fault(file string, line int64, format string, args ...any) {
	m.report.Faults++
	if m.c.Fault != nil {
		m.c.Fault(ReceiptFault{file, line, fmt.Sprintf(format, args...)})
	}
}

// stop is fault where nothing behind it can be checked.
func (m *receiptMerge) stop(file string, line int64, format string, args ...any) {
	m.fault(file, line, format, args...)
	m.report.Stopped = true
}

func (m *receiptMerge) run(ctx context.Context) error {
	if err := m.nextReceipt(); err != nil {
		return err
	}
	for _, r := range []*resultLines{&m.output, &m.errors} {
		if err := m.nextResult(r); err != nil {
			return err
		}
	}
	for !m.report.Stopped && (m.receipt != nil || m.output.at != nil || m.errors.at != nil) {
		if err := m.line(); err != nil {
			return err
		}
		if m.report.Lines%1000 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.tell()
		}
	}
	if !m.report.Stopped {
		if err := m.end(); err != nil {
			return err
		}
		if m.report.Lines == 0 && m.report.Faults == 0 {
			m.stop(ReceiptsFile, 1, "there is nothing in any file: a batch that has them has a line at least")
		}
	}
	m.tell()
	return nil
}

func (m *receiptMerge) tell() {
	if m.c.Progress != nil {
		m.c.Progress(m.report.Lines)
	}
}

// line accounts for the batch's next line, whose number is how many were before.
func (m *receiptMerge) line() error {
	n, receipt := m.report.Lines, m.receipt
	if receipt != nil && receipt.Line < n {
		m.stop(ReceiptsFile, m.receipts.n, "it is of line %d, which was accounted for already", receipt.Line)
		return nil
	}
	var of *resultLines
	if receipt != nil && receipt.Line == n {
		if of = m.resultOf(*receipt); of == nil {
			m.stop(ReceiptsFile, m.receipts.n, "it is of line %d, custom_id %s, and no result is; next are %s in output and %s in errors",
				n, receipt.CustomID, m.output.id(), m.errors.id())
			return nil
		}
		m.compare(*receipt, of)
		m.report.Receipts++
	} else {
		receipt, of = nil, &m.errors
		switch e := m.errors.at; {
		case m.outputIs(n):
			m.stop(OutputFile, m.output.file.n, "custom_id %s: line %d has no receipt", m.output.id(), n)
			return nil
		case e == nil && m.output.at == nil:
			m.stop(ReceiptsFile, m.receipts.n, "it is of line %d, but the results end before line %d", m.receipt.Line, n)
			return nil
		case e == nil:
			m.stop(OutputFile, m.output.file.n, "custom_id %s: line %d has no receipt", m.output.id(), n)
			return nil
		case !openai.Unsent(e.Code) || e.StatusCode != 0:
			m.stop(ErrorFile, m.errors.file.n, "line %d has no receipt; next are %s in output and %s in errors", n, m.output.id(), m.errors.id())
			return nil
		}
		m.report.Unsent++
	}
	if m.input != nil {
		if err := m.compareInput(receipt, of); err != nil || m.report.Stopped {
			return err
		}
	}
	m.report.Lines++
	if of == &m.output {
		m.report.Output++
	} else {
		m.report.Errors++
	}
	if receipt != nil {
		if err := m.nextReceipt(); err != nil {
			return err
		}
	}
	return m.nextResult(of)
}

// outputIs reports whether the next output line is the batch's line n for sure: ids
// follow from physical lines of the input, of which there may be more.
func (m *receiptMerge) outputIs(n int64) bool {
	id := m.report.Batch
	if id == "" && m.receipt != nil {
		id = m.receipt.Batch
	}
	return id != "" && m.output.at != nil && m.output.at.ID == openai.RequestResultID(id, int(n)+1)
}

// resultOf is where the receipt's result is next; nil: nowhere.
func (m *receiptMerge) resultOf(r Receipt) *resultLines {
	for _, f := range []*resultLines{&m.output, &m.errors} {
		if f.at != nil && (string(f.at.RawCustomID) == string(r.CustomID) || r.ID != "" && f.at.ID == r.ID) {
			return f
		}
	}
	return nil
}

// compare checks a receipt against its result.
func (m *receiptMerge) compare(r Receipt, of *resultLines) {
	x, file, line := of.at, of.file.name, of.file.n
	if string(x.RawCustomID) != string(r.CustomID) {
		m.fault(file, line, "custom_id is %s, the receipt says %s", x.RawCustomID, r.CustomID)
	}
	if r.ID != "" && x.ID != r.ID {
		m.fault(file, line, "id is %s, the receipt says %s", x.ID, r.ID)
	}
	if ok := x.StatusCode >= 200 && x.StatusCode < 300 && x.Code == ""; ok != (file == OutputFile) {
		m.fault(file, line, "status %d, error %q: it belongs in the other file", x.StatusCode, x.Code)
	}
	if x.StatusCode == 0 && x.Code == "" {
		m.fault(file, line, "it has neither a response nor an error")
	}
	if x.StatusCode != r.Status {
		m.fault(file, line, "status is %d, the receipt says %d", x.StatusCode, r.Status)
	}
	if openai.Unsent(x.Code) {
		m.fault(file, line, "%s, but there is a receipt", x.Code)
	}
	switch {
	case x.RawBody == nil && r.Kept() != "":
		m.fault(file, line, "it has no reply, the receipt says that there is one")
	case x.RawBody != nil && sumOf(x.RawBody) != r.Kept():
		m.fault(file, line, "the SHA-256 of the reply is %s, the receipt says %q", sumOf(x.RawBody), r.Kept())
	default:
		m.compareTokens(r, of)
	}
	m.compareConstants(r)
}

// compareConstants checks what all receipts of a batch share.
func (m *receiptMerge) compareConstants(r Receipt) {
	first := !m.known
	for _, c := range []struct {
		what string
		of   *string
		got  string
	}{{"batch_id", &m.report.Batch, r.Batch}, {"tenant", &m.report.Tenant, r.Tenant}, {"on_behalf_of", &m.report.OnBehalfOf, r.OnBehalfOf}} {
		if first && *c.of == "" {
			*c.of = c.got
		}
		switch {
		case c.got == "":
			m.fault(ReceiptsFile, m.receipts.n, "%s is missing", c.what)
		case c.got != *c.of:
			m.fault(ReceiptsFile, m.receipts.n, "%s is %q, not %q", c.what, c.got, *c.of)
		}
	}
	m.known = true
	if r.Time.IsZero() || r.Worker == lease.Token("") || len(r.RequestHash) != 2*sha256.Size {
		m.fault(ReceiptsFile, m.receipts.n, "time, worker or request_sha256 is missing")
	}
}

// end checks what is left when every result is accounted for.
func (m *receiptMerge) end() error {
	if m.input != nil {
		switch _, number, bad, err := m.input.next(); {
		case err == io.EOF:
		case err != nil:
			return err
		case bad != "":
			m.fault(InputFile, number, "%s", bad)
		default:
			m.fault(InputFile, number, "it has no result")
		}
	}
	if c := m.c.Counts; c != nil && (c.Total != m.report.Lines || c.Completed != m.report.Output || c.Failed != m.report.Errors) {
		m.fault("batch", 0, "it says %d = %d completed + %d failed, the files have %d = %d + %d",
			c.Total, c.Completed, c.Failed, m.report.Lines, m.report.Output, m.report.Errors)
	}
	return nil
}

// compareInput checks the line against the input's.
func (m *receiptMerge) compareInput(r *Receipt, of *resultLines) error {
	req, number, bad, err := m.input.next()
	file, line := of.file.name, of.file.n
	switch {
	case err == io.EOF:
		m.stop(file, line, "custom_id %s: the input ends before it", of.at.RawCustomID)
		return nil
	case err != nil:
		return err
	case bad != "":
		m.stop(InputFile, number, "%s", bad)
		return nil
	}
	if r == nil && m.output.at != nil && string(req.RawCustomID) == string(m.output.at.RawCustomID) {
		m.stop(OutputFile, m.output.file.n, "custom_id %s: line %d has no receipt", m.output.id(), m.report.Lines)
		return nil
	}
	if string(req.RawCustomID) != string(of.at.RawCustomID) {
		m.stop(InputFile, number, "custom_id is %s, the result has %s", req.RawCustomID, of.at.RawCustomID)
		return nil
	}
	if m.report.Batch != "" && of.at.ID != openai.RequestResultID(m.report.Batch, int(number)) {
		m.fault(file, line, "id is not that of the input's line %d", number)
	}
	if r != nil && sumOf(req.Body) != r.RequestHash {
		m.fault(InputFile, number, "the SHA-256 of the body is %s, the receipt says %s", sumOf(req.Body), r.RequestHash)
	}
	return nil
}

func (m *receiptMerge) nextReceipt() error {
	m.receipt = nil
	raw, err := m.receipts.next()
	if err == io.EOF {
		return nil
	}
	if err == errNoLine {
		m.stop(ReceiptsFile, m.receipts.n, "%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	r, ok := parseReceipt(raw)
	if !ok {
		m.stop(ReceiptsFile, m.receipts.n, "it is no receipt")
		return nil
	}
	m.receipt = &r
	return nil
}

func (m *receiptMerge) nextResult(of *resultLines) error {
	of.at = nil
	raw, err := of.file.next()
	if err == io.EOF {
		return nil
	}
	if err == errNoLine {
		m.stop(of.file.name, of.file.n, "%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	x, err := openai.ParseResultLine(raw)
	if err != nil {
		m.stop(of.file.name, of.file.n, "%v", err)
		return nil
	}
	of.at = &x
	return nil
}
