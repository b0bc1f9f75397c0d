package netbench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/netnative"
)

const (
	streamBytes = 64 << 20
	streamMark  = 0.7             // of the rate of the vsock stream
	streamLimit = 5 * time.Minute // each way
)

// reachHost returns a policy that allows the port of the daemon's host.
func (c Config) reachHost() *api.NetworkPolicy {
	return &api.NetworkPolicy{Allow: []string{fmt.Sprintf("host.forkd.internal:%d", c.HostPort)}}
}

// streams compares the throughput of the network and of forkd's own stream, in one child.
func (c Config) streams(ctx context.Context) (all []netnative.Figure, err error) {
	res, err := measure.ForkAs(ctx, c.Client, api.CreateSandboxesRequest{SnapshotTag: c.Tag, Network: c.reachHost()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, res.OK())) }()
	s := stream{c, res.OK()[0].ID}
	if _, err := s.eval(ctx, carry); err != nil {
		return nil, err
	}
	figures, err := compare.Run(ctx, streamSide{s, s.ownStream}, streamSide{s, s.network}, c.Rounds, c.Say)
	for _, f := range figures {
		all = append(all, ratio(f, "MiB/s").Least(streamMark))
	}
	return all, err
}

// stream is the child that carries bytes.
type stream struct {
	Config
	id string
}

func (s stream) eval(ctx context.Context, code string) (string, error) {
	said, err := measure.Eval(ctx, s.Client, s.id, code, streamLimit)
	return strings.Trim(said, "'"), err
}

// streamSide carries the bytes in one way.
type streamSide struct {
	stream
	carry func(ctx context.Context, back string) (seconds string, err error)
}

var _ compare.Side = streamSide{}

// Settle implements compare.Side.
func (s streamSide) Settle(ctx context.Context) error { return measure.Pause(ctx, quiet) }

// Lap carries bytes in each direction.
func (s streamSide) Lap(ctx context.Context) (all []compare.Value, err error) {
	for _, way := range []struct{ name, back string }{{"bulk_tcp_from_guest", "False"}, {"bulk_tcp_to_guest", "True"}} {
		said, err := s.carry(ctx, way.back)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		seconds, err := strconv.ParseFloat(said, 64)
		if err != nil || seconds <= 0 {
			return nil, fmt.Errorf("%s: it took %q", way.name, said)
		}
		all = append(all, compare.Value{Name: way.name, V: streamBytes / (1 << 20) / seconds})
	}
	return all, nil
}

// ownStream carries bytes to a port of the guest, over vsock.
func (s stream) ownStream(ctx context.Context, back string) (string, error) {
	said, err := s.eval(ctx, fmt.Sprintf(listenInGuest, streamBytes, back))
	if err != nil {
		return "", err
	}
	port, err := strconv.ParseUint(said, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port in the guest: %w", err)
	}
	conn, err := s.Client.DialPort(ctx, s.id, uint16(port))
	if err != nil {
		return "", err
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = Answer(conn) // the guest sees the end of the connection
	}()
	said, err = s.eval(ctx, tookInGuest)
	conn.Close()
	<-answered
	return said, err
}

// network carries bytes to or from the daemon's host.
func (s stream) network(ctx context.Context, back string) (string, error) {
	return s.eval(ctx, fmt.Sprintf(connectFromGuest, s.HostPort, streamBytes, back))
}
