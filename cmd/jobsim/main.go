// Command jobsim serves the simulated jobs service of internal/bridge/jobs/jobsim,
// which says what it can be asked to do. It is for demos and tests only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"holdfast/internal/bridge/jobs/jobsim"
)

func main() {
	var o jobsim.Options
	listen := flag.String("listen", "127.0.0.1:4568", "loopback address and port to serve on; port 0 picks a free one")
	flag.DurationVar(&o.Latency, "latency", 0, "how long a post waits before it is looked at")
	flag.DurationVar(&o.Pending, "pending", 0, "how long a job isn't decided: its posts are answered with 202; 0: decided at once")
	flag.IntVar(&o.Lose, "lose", 0, "of each job's posts, how many are done and not answered")
	flag.IntVar(&o.Refuse, "refuse", 0, "status that refuses every post; 0: none")
	flag.StringVar(&o.Token, "token", "", "bearer token that calls must bring; empty: none")
	flag.Parse()
	if flag.NArg() > 0 || o.Latency < 0 || o.Pending < 0 || o.Lose < 0 || o.Refuse != 0 && (o.Refuse < 400 || o.Refuse > 599) {
		fmt.Fprintln(os.Stderr, "jobsim: unexpected argument, something negative, or a -refuse that is no error's status; see jobsim -help")
		os.Exit(2)
	}
	if err := run(*listen, o); err != nil {
		fmt.Fprintln(os.Stderr, "jobsim:", err)
		os.Exit(1)
	}
}

func run(listen string, o jobsim.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("-listen %q: want host:port", listen)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("-listen %q: a loopback address only, it is a simulation", listen)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: jobsim.New(o), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("listening on http://%s\n", l.Addr())
	go func() {
		<-ctx.Done()
		srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
