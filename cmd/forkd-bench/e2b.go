package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/e2bbench"
	"github.com/forkd/forkd/cmd/internal/e2bwire"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/api/e2bapi/apikey"
)

func newE2BCommand(a *app) *cobra.Command {
	var cfg e2bbench.Config
	cmd := &cobra.Command{
		Use:   "e2b [TAG]",
		Short: "Make sandboxes by E2B's API, each with its first answer, beside the native API",
		Long: "Ask for sandboxes as E2B's packages do, one and many at once, and measure the time to the first answer of each: of a\n" +
			"command, and by the native API in turn; or with --code of run_code(\"1+1\"). The daemon needs a TCP address.",
		Example:           "  forkd-bench e2b base --json\n  forkd-bench e2b code-interpreter-v1 --code --at-once 1,10",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(cfg.AtOnce) == 0 || slices.Min(cfg.AtOnce) < 1 || cfg.Rounds < 1 {
				return exit.UsageError{Err: errors.New("--at-once and --rounds are at least 1")}
			}
			c, e, err := a.flags.Connect(cmd.Context(), endpoint.Options{Start: true, Progress: a.say, Notice: a.say},
				"forkd-bench/"+version)
			if err != nil {
				return err
			}
			defer c.Close()
			if cfg.Tag, err = a.tag(cmd.Context(), args); err != nil {
				return err
			}
			if cfg.E2B, err = wire(e); err != nil {
				return err
			}
			cfg.Native, cfg.Say = c, a.say
			figures, err := e2bbench.Run(cmd.Context(), cfg)
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.Value(figures)
			}
			return a.printE2B(figures)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&cfg.AtOnce, "at-once", []int{1, 10, 100}, "sandboxes that are asked for at once")
	f.IntVar(&cfg.Rounds, "rounds", 3, "rounds of each, after one that does not count")
	f.BoolVar(&cfg.Code, "code", false, "measure run_code(\"1+1\") of a template with the code interpreter")
	return cmd
}

// wire returns a client of the daemon's E2B API.
func wire(e endpoint.Endpoint) (*e2bwire.Client, error) {
	address, token := e.URL, e.Token
	if strings.HasPrefix(address, "unix:") {
		address, token = endpoint.Listening(e.URL)
	}
	if address == "" || token == "" {
		return nil, &client.Error{Message: "this daemon has no TCP address, or its token is not known: forkd e2b env tells"}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1000 // at least the number of parallel requests: handshakes must not be measured
	return &e2bwire.Client{URL: address, Key: apikey.Of(token), HTTP: &http.Client{Transport: transport}}, nil
}

func (a *app) printE2B(figures []e2bbench.Figures) error {
	var rows [][]string
	for _, f := range figures {
		rows = append(rows, []string{fmt.Sprint(f.AtOnce), f.What, ui.Millis(f.FirstP50MS), ui.Millis(f.FirstP99MS),
			known(f.NativeP50MS, ui.Millis), known(f.NativeP99MS, ui.Millis), known(f.Ratio, ratio),
			ui.Millis(f.ControlP50MS), ui.Millis(f.ControlP99MS), ui.Millis(f.RequestP50MS)})
	}
	return a.Table([]string{"AT ONCE", "FIRST", "P50", "P99", "NATIVE P50", "P99", "RATIO", "CONTROL P50", "P99",
		"REQUEST P50"}, rows)
}
