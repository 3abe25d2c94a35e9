package main

import (
	"net/http"
	"net/url"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	"holdfast/internal/openai"
)

func (a *app) cancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel BATCH",
		Short: "Stop a batch, keeping the results it has",
		Long: `Stop a batch: no further line is sent, what is under way is saved, and every
line that was not run is in the error file as batch_cancelled.

The command returns at once; the batch is cancelling for some seconds, and for
as long as its workers need to save (two minutes, unless the installation says
otherwise). Cancelling again, or a batch that is over, changes nothing.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var b openai.Batch
			// Cancelling twice is cancelling once, so that this can be patient.
			err = c.patiently(cmd.Context(), func() error {
				req, err := c.request(cmd.Context(), http.MethodPost, "/v1/batches/"+url.PathEscape(args[0])+"/cancel", nil)
				if err != nil {
					return backoff.Permanent(err)
				}
				return c.do(req, &b)
			})
			if err != nil {
				return c.trouble("cancel "+args[0], err)
			}
			switch {
			case a.json:
				return a.printJSON(b)
			case terminal(b.Status):
				a.note("Batch %s is over already: %s.", b.ID, b.Status)
			case b.Status == openai.StatusCancelling:
				a.note("Batch %s is cancelling. See how it goes: holdfast status %[1]s", b.ID)
			default: // finalizing, or running out of its window
				a.note("Batch %s is ending already: %s.", b.ID, b.Status)
			}
			return a.print("%s\n", b.Status)
		},
	}
}
