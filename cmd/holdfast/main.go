// Command holdfast submits batches and shows what became of them.
//
//	holdfast submit requests.jsonl --wait
//	holdfast status batch_…
//	holdfast cancel batch_…
//	holdfast results batch_… --output out.jsonl --errors err.jsonl
//	holdfast receipts batch_… --output receipts.jsonl
//	holdfast receipts verify batch_…
//	holdfast events batch_…
//	holdfast dead list | show BATCH PART | redrive BATCH PART...
//	holdfast reclaim
//	holdfast cost batch_…
//	holdfast key create --tenant acme --principal ann@acme.example --name ci
//	holdfast key list | disable KEY | rotate KEY --tenant acme, or with --api
//	holdfast tenant list | show | create | set | drop enable | drop disable TENANT
//	holdfast config
//
// submit, status, results, receipts, events, dead and reclaim speak HTTP to the API at HOLDFAST_URL with the key
// in HOLDFAST_API_KEY, as any OpenAI client would. key (without --api) and
// tenant work on the table HOLDFAST_TABLE, and cost reads logs and executions, with
// the caller's AWS credentials.
//
// What a script wants is on stdout, what a person wants to know on stderr. The
// exit status is 0 when the command did what it says (for a batch that has
// ended: completed), 1 when it failed (a batch: failed, expired, cancelled),
// and 2 when it was called wrongly.
package main

import (
	"context"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute // API Gateway gives up after 30 s
	transport.MaxIdleConnsPerHost = 2 * partsAtOnce
	code := run(ctx, os.Args[1:], &app{
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		terminal: term.IsTerminal(int(os.Stderr.Fd())),
		getenv:   os.Getenv,
		environ:  os.Environ,
		now:      time.Now,
		http:     &http.Client{Transport: transport},
		keys:     openKeys,
		tenants:  openTenants,
		accounts: openAccount,
		look:     time.Second,
		pause:    500 * time.Millisecond,
		cache:    os.UserCacheDir,
	})
	stop()
	os.Exit(code)
}
