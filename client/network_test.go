package client_test

import (
	"encoding/json"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestNetworkOfASandbox(t *testing.T) {
	c := startDaemon(t).client(t)
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "py", Net: api.NetPublic})
	if err != nil {
		t.Fatal(err)
	}
	sb := res.Sandboxes[0]
	if sb.Network == nil || sb.Network.Policy != api.NetPublic || sb.GuestAddr != "192.0.0.2" {
		t.Errorf("forked: %+v", sb)
	}
	n, err := c.SetNetwork(t.Context(), sb.ID, api.SetNetworkRequest{Network: &api.NetworkPolicy{Allow: []string{"pypi.org:443"}}})
	if err != nil || n.Policy != api.NetCustom || n.Allow != 1 {
		t.Errorf("set: %+v, %v", n, err)
	}
	if n, err = c.Network(t.Context(), sb.ID); err != nil || n.Effective.Allow[0] != "pypi.org:443" {
		t.Errorf("got %+v, %v", n, err)
	}
	if flows, err := c.Flows(t.Context(), sb.ID); err != nil || len(flows) != 1 || flows[0].Rule != "pypi.org:443" {
		t.Errorf("flows: %+v, %v", flows, err)
	}
	var said []string
	err = c.NetworkLog(t.Context(), sb.ID, false, func(line []byte) error {
		var l struct{ Verdict string }
		err := json.Unmarshal(line, &l)
		said = append(said, l.Verdict)
		return err
	})
	if err != nil || len(said) != 1 || said[0] != "denied" {
		t.Errorf("log: %q, %v", said, err)
	}
	_, err = c.SetNetwork(t.Context(), sb.ID, api.SetNetworkRequest{Network: &api.NetworkPolicy{Allow: []string{"a:b:c:d"}}})
	if client.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a bad rule: %v", err)
	}
}
