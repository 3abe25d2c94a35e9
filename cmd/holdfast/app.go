package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/access"
	"holdfast/internal/config"
)

// The exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is what the commands stand on, so that tests can run them in process.
type app struct {
	stdin          io.Reader // nil: the process's
	stdout, stderr io.Writer
	terminal       bool // stderr is one: bars, else plain lines
	getenv         func(string) string
	environ        func() []string // as os.Environ
	now            func() time.Time
	http           *http.Client
	keys           func(ctx context.Context, table string) (access.Store, error)
	tenants        func(ctx context.Context, table string) (access.Tenants, error)
	accounts       func(ctx context.Context, res config.Resources) (account, error)
	look           time.Duration          // between two looks at a running batch, at first
	pause          time.Duration          // before a failed read is tried again, at first
	cache          func() (string, error) // folder for what can be lost

	json    bool // --json
	printed bool // stdout has its object
}

// run is the whole program, but for the process around it.
func run(ctx context.Context, args []string, a *app) int {
	root := a.root()
	root.SetArgs(args)
	called, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	f, ok := errors.AsType[*failure](err)
	if !ok { // cobra's own, about flags
		f = usage(seeHelp(called), "%v", err)
	}
	if f.exit == exitUsage && asksForJSON(args) {
		a.json = true // flags are read up to the wrong one
	}
	a.explain(f)
	return f.exit
}

// root is the whole tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "Run batches of inference requests on your own AWS account",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON object on stdout")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddCommand(a.submit(), a.status(), a.cancel(), a.results(), a.receipts(), a.events(), a.dead(), a.reclaim(), a.cost(), a.key(), a.tenant(), a.config())
	a.nameArguments(root)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(seeHelp(c), "%v", err) })
	return root
}

// asksForJSON reports whether --json is among the arguments, whatever is wrong with
// the rest of them.
func asksForJSON(args []string) bool {
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return false
		case name != "--json":
			continue
		}
		yes, err := strconv.ParseBool(value)
		return !given || yes || err != nil
	}
	return false
}

// failure is why a command ends with something else than 0.
type failure struct {
	exit  int    // 1 or 2
	what  string // what was wrong, and where
	hint  string // what to do about it
	shown bool   // stdout and stderr say it already
	err   error
}

// Error is what was wrong, in words for a person.
func (f *failure) Error() string { return f.what }

// Unwrap is the cause, if there is one.
func (f *failure) Unwrap() error { return f.err }

func usage(hint, format string, args ...any) *failure {
	return &failure{exit: exitUsage, what: fmt.Sprintf(format, args...), hint: hint}
}

func failed(hint string, err error, format string, args ...any) *failure {
	return &failure{exit: exitFailed, what: fmt.Sprintf(format, args...), hint: hint, err: err}
}

// alsoHint puts one more hint behind that of a failure.
func alsoHint(err error, hint string) error {
	if f, ok := errors.AsType[*failure](err); ok {
		f.hint = strings.TrimSpace(f.hint + " " + hint)
	}
	return err
}

// explain tells a person on stderr and, with --json, a script on stdout: unless that
// has its one object already, which says it in its own way.
func (a *app) explain(f *failure) {
	if f.shown {
		return
	}
	fmt.Fprintf(a.stderr, "holdfast: %s\n", printable(f.what))
	if f.hint != "" {
		fmt.Fprintf(a.stderr, "  %s\n", printable(f.hint))
	}
	if a.json && !a.printed {
		type fault struct {
			Message   string `json:"message"`
			Hint      string `json:"hint,omitempty"`
			Code      string `json:"code,omitempty"`
			RequestID string `json:"request_id,omitempty"`
		}
		out := fault{Message: f.what, Hint: f.hint}
		if e, ok := errors.AsType[*apiError](f.err); ok {
			out.Code, out.RequestID = e.Code, e.RequestID
		}
		_ = a.printJSON(map[string]fault{"error": out}) // the exit status still says it
	}
}

// printJSON writes v as the one object on stdout.
func (a *app) printJSON(v any) error {
	a.printed = true // also if half of it is
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return failed("", err, "can't write to stdout: %v", err)
	}
	return nil
}

// note tells a person something on stderr.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.stderr, format+"\n", args...) }
