package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"holdfast/internal/config"
	"holdfast/internal/deploy"
)

func (a *app) config() *cobra.Command {
	var forDeploy bool
	c := &cobra.Command{
		Use:   "config",
		Short: "Print every setting with its effective value",
		Long: `Print every setting with its effective value: what this environment would give a
deploy. Values that won't do are all reported at once. With --deploy everything else
that make deploy is given is judged as well: the services that are called
(HOLDFAST_UPSTREAM_URL, HOLDFAST_UPSTREAMS, HOLDFAST_JOBS_URL and what belongs to them),
ALARM_EMAIL, DOORS, GATEWAY, VPC, SUBNETS, ROUTE_TABLES and ENDPOINTS, and variables
HOLDFAST_… that nothing reads.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := a.settings(forDeploy)
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
	c.Flags().BoolVar(&forDeploy, "deploy", false, "judge all that make deploy is given")
	return c
}

// settings are those of the environment. The error has every fault, for a deploy also
// of what isn't in the table. Variables that nothing reads are a fault there, and told
// elsewhere.
func (a *app) settings(forDeploy bool) (config.Settings, error) {
	unknown := deploy.Unknown(a.environ())
	if forDeploy {
		o, err := deploy.Parse(a.getenv, deploy.Context(a.getenv))
		return o.Settings, errors.Join(append(unknown, err)...)
	}
	for _, fault := range unknown {
		fmt.Fprintf(a.stderr, "holdfast: %s\n", printable(fault.Error()))
	}
	return config.Parse(a.getenv)
}
