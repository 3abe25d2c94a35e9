package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/internal/access"
	"holdfast/internal/config"
)

func (a *app) dropEnable() *cobra.Command {
	var d access.Drop
	c := &cobra.Command{
		Use: "enable TENANT", Short: "Let objects under in/TENANT/ start batches", Args: cobra.ExactArgs(1),
		Long: `Let objects that are put under in/TENANT/ in the inputs bucket start batches.
Who may put them there is a matter of IAM: whoever can counts as the principal
named here. The record is made if there is none.

Endpoint and window are for objects that name none themselves; without these
flags they are the first of HOLDFAST_ENDPOINTS and HOLDFAST_WINDOWS. What is given
here must be among those of this environment, which should be those of the stack.

Doing it again replaces principal, endpoint and window.`,
		Example: "  holdfast tenant drop enable acme --principal nightly@acme.example --window 1h",
		RunE: func(c *cobra.Command, args []string) error {
			if d.Principal == "" {
				return lacking(c, "principal")
			}
			return a.runDropEnable(c.Context(), args[0], d)
		},
	}
	c.Flags().StringVar(&d.Principal, "principal", "", "in whose name these batches run (required)")
	c.Flags().StringVar(&d.Endpoint, "endpoint", "", "their endpoint, like /v1/chat/completions; default the installation's first")
	c.Flags().StringVar(&d.Window, "window", "", "their completion window, like 24h; default the installation's first")
	return c
}

func (a *app) runDropEnable(ctx context.Context, name string, d access.Drop) error {
	// Everything that is wrong with it is said at once.
	if err := errors.Join(access.Tenant{Name: name, Drop: &d}.Check(), a.checkDrop(d)); err != nil {
		return usage("See holdfast tenant drop enable --help and holdfast config. If the stack was deployed with other HOLDFAST_ENDPOINTS or HOLDFAST_WINDOWS, set them here, too.",
			"the drop won't do:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	created := false
	t, err := a.changeTenant(ctx, name, true, func(t *access.Tenant) error {
		created = t.Ver == 0
		t.EnableDrop(d.Principal, d.Endpoint, d.Window, a.now())
		return nil
	})
	if err != nil {
		return err
	}
	if created {
		a.note("Tenant %s had no record; it has one now.", t.Name)
	}
	a.note("Drop of %s: %s.", t.Name, dropText(t.Drop))
	a.note("Objects put under in/%s/ in the inputs bucket start batches, from 5 s on at the latest.", t.Name)
	return a.answerTenant(t)
}

// checkDrop asks whether the settings of this environment know endpoint and
// window. What has no form is left to access.
func (a *app) checkDrop(d access.Drop) error {
	if d.Endpoint == "" && d.Window == "" {
		return nil
	}
	s, err := config.Parse(a.getenv)
	if err != nil {
		return fmt.Errorf("the settings of this environment, which should be those of the stack, won't do:\n%w", err)
	}
	var errs []error
	if d.Endpoint != "" && access.CheckEndpoint(d.Endpoint) == nil && !slices.Contains(s.Endpoints, d.Endpoint) {
		errs = append(errs, fmt.Errorf("endpoint: %s is none of HOLDFAST_ENDPOINTS: %s", d.Endpoint, strings.Join(s.Endpoints, ", ")))
	}
	if _, ok := s.Window(d.Window); d.Window != "" && access.CheckWindow(d.Window) == nil && !ok {
		errs = append(errs, fmt.Errorf("window: %s is, as it is written, none of HOLDFAST_WINDOWS: %s", d.Window, strings.Join(s.Windows, ", ")))
	}
	return errors.Join(errs...)
}

func (a *app) dropDisable() *cobra.Command {
	return &cobra.Command{
		Use: "disable TENANT", Short: "Let objects under in/TENANT/ start nothing", Args: cobra.ExactArgs(1),
		Long: `Let objects that are put under in/TENANT/ in the inputs bucket start nothing, from
30 s on at the latest. Each gets an error object in the results bucket, which
says so; batches that run go on.`,
		RunE: func(c *cobra.Command, args []string) error {
			off := false
			t, err := a.changeTenant(c.Context(), args[0], false, func(t *access.Tenant) error {
				off = t.Drop == nil
				t.Drop = nil
				return nil
			})
			if err != nil {
				return err
			}
			if off {
				a.note("Drop of %s was off already.", t.Name)
			} else {
				a.note("Drop of %s: off, everywhere within 30 s.", t.Name)
			}
			return a.answerTenant(t)
		},
	}
}
