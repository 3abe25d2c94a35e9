package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/internal/access"
	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/batch"
)

// openTenants is where tenants are kept, with the AWS credentials at hand.
func openTenants(ctx context.Context, table string) (access.Tenants, error) {
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	return dynamo.Open(cfg, table).Tenants, nil
}

// tenant is what an operator records of a tenant.
func (a *app) tenant() *cobra.Command {
	help := func(c *cobra.Command, _ []string) error { return c.Help() }
	c := &cobra.Command{Use: "tenant", Short: "Manage tenants: limits, and who may start batches by S3", Args: cobra.NoArgs,
		Long: `Manage the records of tenants in the table HOLDFAST_TABLE, with the AWS
credentials at hand.

A tenant needs a record only for limits of its own and for the S3 door; keys and
batches work without one.`,
		RunE: help}
	drop := &cobra.Command{Use: "drop", Short: "Switch the S3 door of a tenant on or off", Args: cobra.NoArgs, RunE: help}
	drop.AddCommand(a.dropEnable(), a.dropDisable())
	c.AddCommand(a.tenantCreate(), a.tenantList(), a.tenantShow(), a.tenantSet(), drop)
	return c
}

func (a *app) tenantCreate() *cobra.Command {
	var l limits
	c := &cobra.Command{
		Use: "create TENANT", Short: "Make a tenant's record", Args: cobra.ExactArgs(1),
		Long: `Make a tenant's record, with limits if flags say so.

` + aboutLimits,
		Example: "  holdfast tenant create acme --running-batches 20",
		RunE: func(c *cobra.Command, args []string) error {
			t, err := a.changeTenant(c.Context(), args[0], true, func(t *access.Tenant) error {
				if t.Ver > 0 {
					return failed("holdfast tenant show "+t.Name+" shows its record; holdfast tenant set changes its limits.", nil, "the tenant %s has a record already", t.Name)
				}
				l.apply(&t.Limits)
				return nil
			})
			if err != nil {
				return err
			}
			a.note("Tenant %s created; limits: %s.", t.Name, limitsText(t.Limits))
			return a.answerTenant(t)
		},
	}
	l.flags(c)
	return c
}

func (a *app) tenantShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TENANT", Short: "Show a tenant's record", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			store, table, err := a.openTenant(c.Context(), args[0])
			if err != nil {
				return err
			}
			t, err := store.Get(c.Context(), args[0])
			if err != nil {
				return a.tenantTrouble(table, "look up the tenant "+args[0], args[0], err)
			}
			if a.json {
				return a.printJSON(newTenantReport(t))
			}
			return a.print("%s", tenantText(t))
		},
	}
}

func (a *app) tenantList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List tenants that have a record, by name", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			store, table, err := openTable(c.Context(), a, a.tenants)
			if err != nil {
				return err
			}
			var all []access.Tenant
			for after, more := "", true; more; {
				var page []access.Tenant
				page, more, err = store.List(c.Context(), after, access.MaxTenants)
				if err != nil {
					return a.tenantTrouble(table, "list tenants", "", err)
				}
				if all = append(all, page...); len(page) > 0 {
					after = page[len(page)-1].Name
				}
			}
			return a.answerTenants(all)
		},
	}
}

// openTenant opens the store, unless name is none.
func (a *app) openTenant(ctx context.Context, name string) (access.Tenants, string, error) {
	if err := access.CheckTenant(name); err != nil {
		return nil, "", usage("It is the name that keys have: holdfast key create --tenant.", "%q won't do: %v", name, err)
	}
	return openTable(ctx, a, a.tenants)
}

// changeTenant is access.ChangeTenant on the table, its errors worded. A *failure
// of change's own stays as it is.
func (a *app) changeTenant(ctx context.Context, name string, create bool, change func(*access.Tenant) error) (access.Tenant, error) {
	store, table, err := a.openTenant(ctx, name)
	if err != nil {
		return access.Tenant{}, err
	}
	t, err := access.ChangeTenant(ctx, store, name, create, a.now(), change)
	if err != nil {
		return access.Tenant{}, a.tenantTrouble(table, "change the tenant "+name, name, err)
	}
	return t, nil
}

func (a *app) tenantTrouble(table, doing, name string, err error) error {
	_, worded := errors.AsType[*failure](err)
	switch {
	case worded:
		return err
	case errors.Is(err, access.ErrNoTenant):
		return failed(fmt.Sprintf("holdfast tenant list shows those that have one. Is HOLDFAST_TABLE the right table? To make one: holdfast tenant create %s", name), err,
			"the table %s has no record of a tenant %s", table, name)
	case errors.Is(err, access.ErrChanged):
		return failed("Try again, and see holdfast tenant show "+name+".", err, "can't %s: others keep changing it at the same time", doing)
	case errors.Is(err, batch.ErrNewer):
		return failed("Use the holdfast of the release that is deployed.", err, "can't %s: its record was written by a newer program", doing)
	case errors.Is(err, context.Canceled):
		return failed("holdfast tenant list and show tell what is recorded.", err, "interrupted: it is not known whether the table did it")
	}
	return a.tableTrouble(table, doing, err)
}
