package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar shows progress on stderr: a bar on a terminal, a line now and then where
// the output is kept (a log, a file). A nil bar shows nothing.
type bar struct {
	a       *app
	bar     *progressbar.ProgressBar // nil off a terminal
	what    string
	total   int64
	bytes   bool
	current int64
	tenth   int64 // last tenth that was printed
}

func (a *app) newBar(what string, total int64, bytes bool) *bar {
	b := &bar{a: a, total: total, bytes: bytes}
	if a.terminal {
		b.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(a.stderr),
			progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(bytes),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(65*time.Millisecond),
			progressbar.OptionClearOnFinish())
		_ = b.bar.RenderBlank() // only a bar
	}
	return b
}

// set says how far it is, from zero to the total, and what is being counted.
func (b *bar) set(what string, n int64) {
	if b == nil {
		return
	}
	news := what != b.what
	b.what, b.current = what, max(b.current, min(n, b.total))
	if b.bar != nil {
		if news {
			b.bar.Describe(what)
		}
		_ = b.bar.Set64(b.current) // only a bar
		return
	}
	if tenth := 10 * b.current / b.total; tenth > b.tenth {
		b.tenth, news = tenth, true
	}
	if news && (!b.bytes || b.total > longUpload) {
		b.line()
	}
}

// longUpload is the least that an upload's log lines are worth: a smaller one is
// over before anybody reads them.
const longUpload = 32 << 20

func (b *bar) line() {
	if b.bytes {
		b.a.note("  %s %d/%d MB", b.what, b.current/1e6, b.total/1e6)
		return
	}
	b.a.note("  %s %d/%d", b.what, b.current, b.total)
}

// aside says something beside the bar.
func (b *bar) aside(say func()) {
	if b == nil || b.bar == nil {
		say()
		return
	}
	_ = b.bar.Clear() // only a bar
	say()
	_ = b.bar.RenderBlank()
}

// finish takes the bar off the terminal.
func (b *bar) finish() {
	if b == nil {
		return
	}
	if b.bar != nil {
		_ = b.bar.Finish() // only a bar
		fmt.Fprint(b.a.stderr, "\r")
	}
}

// reader counts what is read through it.
func (b *bar) reader(what string, r io.Reader) io.Reader { return &counted{r: r, bar: b, what: what} }

type counted struct {
	r    io.Reader
	bar  *bar
	what string
	n    int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.bar.set(c.what, c.n)
	return n, err
}
