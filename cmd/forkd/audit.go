package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/domain/audit"
)

// auditOptions are the flags of `forkd audit`.
type auditOptions struct {
	file   string
	since  string
	filter audit.Filter
	result string
	reads  bool
	limit  int
	follow bool
}

func newAuditCommand(a *app) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Print who did what",
		Long: "Print the last lines of the daemon's audit log (`forkd serve --audit-log`): what was done, by whom, and what\n" +
			"became of it. Actions that only read are left out unless --reads is given. Without --file the daemon is asked,\n" +
			"which shows it to its operator only; with it the files are read here, also when no daemon runs. With --json a\n" +
			"line is as it is in the file (docs/inside/formats/audit.md).",
		Example: "  forkd audit --since 1h --action sandbox.\n  forkd audit --result failed --follow\n" +
			"  forkd audit verify --file /var/log/forkd/audit.log",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := o.query(time.Now())
			if err != nil {
				return err
			}
			return readAudit(cmd.Context(), a, o.file, q)
		},
	}
	f := cmd.Flags()
	cmd.PersistentFlags().StringVar(&o.file, "file", "", "read this `file` and those beside it, instead of asking the daemon")
	f.StringVar(&o.since, "since", "", "only from this `time` on: RFC 3339, or as long ago as 90m")
	f.StringVar(&o.filter.Sandbox, "sandbox", "", "only of this sandbox")
	f.StringVar(&o.filter.Tenant, "tenant", "", "only of this tenant")
	f.StringVar(&o.filter.Action, "action", "", "only this action; with a dot at its end those that begin so")
	f.StringVar(&o.result, "result", "", "only with this result: ok, refused or failed")
	f.StringVar(&o.filter.Request, "request", "", "only this request, by its `id`")
	f.BoolVar(&o.reads, "reads", false, "also actions that only read")
	f.IntVarP(&o.limit, "limit", "n", 100, "the last so many lines; 0: all")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes")
	cmd.AddCommand(newAuditVerifyCommand(a, &o))
	return cmd
}

// query returns the query for the flags.
func (o auditOptions) query(now time.Time) (audit.Query, error) {
	q := audit.Query{Filter: o.filter, Last: o.limit, Follow: o.follow}
	q.Changes, q.Result = !o.reads, audit.Result(o.result)
	switch q.Result {
	case "", audit.OK, audit.Refused, audit.Failed:
	default:
		return q, exit.UsageError{Err: fmt.Errorf("--result %q: want ok, refused or failed", o.result)}
	}
	if o.limit < 0 {
		return q, exit.UsageError{Err: fmt.Errorf("--limit is %d, want at least 0", o.limit)}
	}
	var err error
	q.Since, err = sinceTime(o.since, now)
	return q, err
}

// readAudit prints lines of a file or of the daemon's log.
func readAudit(ctx context.Context, a *app, file string, q audit.Query) error {
	if file != "" {
		return audit.Read(ctx, file, q, func(line []byte, e audit.Entry) error {
			return printAuditLine(&a.Printer, line, e)
		})
	}
	return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		req := client.AuditRequest{Since: q.Since, Sandbox: q.Sandbox, Tenant: q.Tenant, Action: q.Action,
			Result: string(q.Result), Request: q.Request, Changes: q.Changes, Limit: q.Last, Follow: q.Follow}
		return c.Audit(ctx, req, func(line []byte) error {
			e, err := audit.Decode(line)
			if err != nil {
				return fmt.Errorf("read the audit log: %w", err)
			}
			return printAuditLine(&a.Printer, line, e)
		})
	})
}

func printAuditLine(p *ui.Printer, line []byte, e audit.Entry) error {
	if p.JSON {
		_, err := fmt.Fprintf(p.Out, "%s\n", line)
		return err
	}
	_, err := fmt.Fprintln(p.Out, ui.Clean(auditText(e)))
	return err
}

// auditText returns one line. Its parts may come from untrusted clients.
func auditText(e audit.Entry) string {
	parts := []string{e.Time.UTC().Format(time.RFC3339), string(e.Result), e.Action}
	add := func(before, v string) {
		if v != "" {
			parts = append(parts, before+v)
		}
	}
	add("", e.Sandbox)
	add("snapshot ", e.Snapshot)
	add("image ", e.Image)
	add("", e.Object)
	if e.Count > 1 {
		add("", fmt.Sprintf("%d times", e.Count))
	}
	who := e.Principal
	if e.KeyName != "" {
		who = "key " + e.KeyName
	}
	add("by ", who)
	add("from ", e.Source)
	add("showing ", e.Claim)
	add("of ", e.Tenant)
	if e.Status > 0 {
		add("", ui.Duration(time.Duration(e.LatencyUS)*time.Microsecond))
	}
	add("request ", e.Request)
	if e.Lost > 0 {
		add("", fmt.Sprintf("%d actions before it are missing", e.Lost))
	}
	if note := e.Error + e.Note; note != "" {
		add("", "("+note+")")
	}
	return strings.Join(parts, "  ")
}

func newAuditVerifyCommand(a *app, o *auditOptions) *cobra.Command {
	var heads []string
	var allowDropped bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the audit log is what was written",
		Long: "Read all chains of the audit log and compare them with their hashes. It prints the chains' heads last: note\n" +
			"them on another machine, and --head shows later whether the lines of that time are still there. It fails if a\n" +
			"line was changed, and if a full chain of changes has removed its oldest lines.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := verifyAudit(cmd.Context(), a, o.file, heads)
			if err != nil {
				return err
			}
			return printAuditReport(&a.Printer, r, allowDropped)
		},
	}
	cmd.Flags().StringArrayVar(&heads, "head", nil,
		"`HEAD` that an earlier verification printed; may be given more than once")
	cmd.Flags().BoolVar(&allowDropped, "allow-dropped", false,
		"succeed although full chains have removed their oldest lines")
	return cmd
}

func verifyAudit(ctx context.Context, a *app, file string, heads []string) (r audit.Report, err error) {
	known := make([]audit.Head, len(heads))
	for i, text := range heads {
		if known[i], err = audit.ParseHead(text); err != nil {
			return r, exit.UsageError{Err: fmt.Errorf("--head: %w", err)}
		}
	}
	if file != "" {
		return audit.Verify(ctx, file, known...)
	}
	err = a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		w, err := c.VerifyAudit(ctx, heads...)
		r = audit.Report{OK: w.OK, Status: audit.Status(w.Status), Files: w.Files, Lines: w.Lines,
			First: w.First, Last: audit.Head(w.Last), Dropped: w.Dropped, Lost: w.Lost, Torn: w.Torn,
			Pending: w.Pending, Problems: []audit.Problem{}}
		for _, p := range w.Problems {
			r.Problems = append(r.Problems, audit.Problem(p))
		}
		for _, c := range w.Chains {
			r.Chains = append(r.Chains, audit.ChainReport{Chain: c.Chain, Lines: c.Lines, First: c.First,
				Last: audit.Head(c.Last), Dropped: c.Dropped, Since: c.Since,
				Changes: c.Changes, Counted: c.Counted})
		}
		return err
	})
	return r, err
}

// printAuditReport returns an error if the log was changed, or if changes were dropped without
// allowDropped.
func printAuditReport(a *ui.Printer, r audit.Report, allowDropped bool) error {
	if a.JSON {
		if err := a.Value(r); err != nil {
			return err
		}
	} else {
		writeAuditReport(a, r)
	}
	switch {
	case !r.OK:
		return errors.New("the audit log is not what was written")
	case r.Status == audit.Gone && !allowDropped:
		return errors.New("changes are missing from the audit log: full chains removed their oldest lines " +
			"(raise --audit-log-size or --audit-log-files of forkd serve, or accept this with --allow-dropped)")
	}
	return nil
}

func writeAuditReport(a *ui.Printer, r audit.Report) {
	for _, p := range r.Problems {
		where := p.File
		if p.Line > 0 {
			where += fmt.Sprintf(" line %d", p.Line)
		}
		fmt.Fprintln(a.Out, ui.Clean(where+": "+p.What))
	}
	for _, c := range r.Chains {
		if c.Dropped == 0 {
			continue
		}
		what := "GONE"
		if !c.Changes {
			what = "rotated"
		}
		since := ""
		if c.Since != nil {
			since = ", all from before " + c.Since.UTC().Format(time.RFC3339)
		}
		fmt.Fprintln(a.Out, ui.Clean(fmt.Sprintf("%s: lines 1 to %d of %s%s", what, c.Dropped, chainTitle(c.Chain), since)))
	}
	fmt.Fprintf(a.Out, "%d lines in %d files, %d to %d; %d actions are missing, as the lines tell\n",
		r.Lines, r.Files, r.First, r.Last.Seq, r.Lost)
	for _, c := range r.Chains {
		if c.Counted > 0 {
			fmt.Fprintf(a.Out, "%s: %d requests are counted without a line of their own\n", chainTitle(c.Chain), c.Counted)
		}
	}
	for _, c := range r.Chains {
		fmt.Fprintln(a.Out, ui.Clean("head "+c.Last.String()))
	}
}

// chainTitle returns the name of a chain for people.
func chainTitle(chain string) string {
	if chain == "" {
		return "the operator's changes"
	}
	return "chain " + chain
}
