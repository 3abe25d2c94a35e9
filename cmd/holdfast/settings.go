package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"holdfast/internal/config"
)

func (a *app) config() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print every setting with its effective value",
		Long: `Print every setting with its effective value: what this environment would give a
deploy. Values that won't do are all reported at once.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := config.Parse(a.getenv)
			if err != nil {
				return &failure{exit: exitUsage, what: "the settings won't do:\n" + err.Error(), err: err}
			}
			rows := config.Rows(s)
			if a.json {
				return a.printJSON(map[string]any{"settings": rows})
			}
			var out strings.Builder
			w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SETTING\tVALUE\tUNIT\tDEFAULT\tFLOOR\tCEILING\tWHY")
			for _, r := range rows {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, r.Default, r.Floor, r.Ceiling, r.Why)
			}
			if err := w.Flush(); err != nil {
				return failed("", err, "can't print the table: %v", err)
			}
			return a.print("%s", out.String())
		},
	}
}
