package netnative

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netd/nettest"
	"github.com/forkd/forkd/internal/net/netd/ruled"
	"github.com/forkd/forkd/internal/net/netdns"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// TestMain also acts as forkd-net: the tests start the test binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) < 5 || os.Args[1] != "--control" {
		nettest.Main(m, (*testing.M).Run)
	}
	if err := forkdNet(os.Args[2], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func forkdNet(socket, resolvConf string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // ends also if the test leaves it
	defer cancel()
	l, err := control.Listen(socket)
	if err != nil {
		return err
	}
	floor, err := netpolicy.NewFloor(netpolicy.FloorConfig{})
	if err != nil {
		return err
	}
	names := netdns.New(netdns.Config{
		Upstream: &netdns.Client{Servers: netdns.OpenResolvConf(resolvConf).Servers}, HasIPv6: func() bool { return false },
	})
	warn := func(err error) { fmt.Fprintln(os.Stderr, err) }
	s, err := netd.New(netd.Config{Rules: ruled.New(ruled.Config{Floor: floor, Resolver: names}), Warn: warn})
	if err != nil {
		return err
	}
	return control.NewServer(l, s, warn).Serve(ctx)
}

func TestEachFigureIsMeasured(t *testing.T) {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	inNamespaces(t)
	all, err := Run(t.Context(), Config{
		Program: os.Args[0], Connects: perTurn, BulkMiB: 1, Verdicts: 10, Flows: []int{3}, VMs: []int{2, 70}, Rounds: 1,
		Say: func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
		if f.Unit == "" || f.By == "" || f.Value <= 0 && f.Unit != "KiB" && f.Unit != "ms of CPU/GiB" {
			t.Errorf("%+v", f)
		}
	}
	want := []string{
		"connect_relayed_p50", "connect_relayed_p99", "connect_relayed_quickest",
		"connect_handed_p50", "connect_handed_p99", "connect_handed_quickest",
		"answer_relayed_p50", "answer_handed_p50", "answer_sni_p50",
		"bulk_relayed_from_guest", "bulk_relayed_to_guest", "bulk_handed_from_guest", "bulk_handed_to_guest",
		"verdict_1000_rules", "cut_3_flows", "attach_2", "attach_2_quickest", "attach_70", "attach_70_quickest",
		"forkd_net_rss", "forkd_net_anon", "forkd_net_anon_per_vm_of_70",
	}
	if !slices.Equal(names, want) {
		t.Errorf("figures are %q, want %q", names, want)
	}
}

// inNamespaces skips the test unless it runs in a separate network namespace.
func inNamespaces(t *testing.T) {
	t.Helper()
	if os.Getenv("FORKD_NETTEST_INSIDE") == "" {
		t.Skip("it needs user and network namespaces (unshare -rn), which cannot be had here")
	}
}

func TestFiguresBesideTheirFloors(t *testing.T) {
	f := Figure{Value: 30}
	if over := f.Beside(20, Difference).Most(10); over.Result != 10 || !*over.Met {
		t.Errorf("%+v", over)
	}
	if ratio := f.Beside(20, Ratio).Least(1.6); ratio.Result != 1.5 || *ratio.Met {
		t.Errorf("%+v", ratio)
	}
	if alone := f.Beside(20, Alone); alone.Result != 30 || alone.Met != nil {
		t.Errorf("%+v", alone)
	}
}
