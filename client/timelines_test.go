package client_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestTimelines(t *testing.T) {
	_, c, above := sandbox(t, nil)
	b, err := c.Branch(t.Context(), above, api.BranchRequest{Tag: "tried", N: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, child := range b.Children {
		if err := c.Upload(t.Context(), child.ID, "/srv/score", "", strings.NewReader(strings.Repeat("7", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := client.Keep(t.Context(), c, api.KeepRequest{Of: above, Best: 2, File: "/srv/score"})
	if err != nil || kept.Kept != 2 || kept.Ended != 1 || kept.Sandboxes[0].ID != b.Children[2].ID || *kept.Sandboxes[0].Score != 777 {
		t.Fatalf("%+v, %v", kept, err)
	}
	ours, theirs := kept.Sandboxes[0].ID, kept.Sandboxes[1].ID
	res, err := client.Merge(t.Context(), c, ours, api.MergeRequest{Theirs: theirs})
	if err != nil || res.Applied || res.Unresolved != 1 || res.Conflicts[0].Path != "/srv/score" {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = client.Merge(t.Context(), c, ours, api.MergeRequest{Theirs: theirs, Resolve: api.MergeTheirs})
	if err != nil || !res.Applied {
		t.Fatalf("%+v, %v", res, err)
	}
	promoted, err := client.Promote(t.Context(), c, ours, api.PromoteRequest{Parent: api.PromoteKill})
	if err != nil || promoted.Sandbox.ID != above || promoted.PromotedFrom != ours || promoted.KeptIn != "" {
		t.Fatalf("%+v, %v", promoted, err)
	}
	if _, err := client.Promote(t.Context(), c, ours, api.PromoteRequest{}); !client.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := client.Keep(t.Context(), c, api.KeepRequest{Of: "none", Best: 1, File: "/x"}); !client.IsNotFound(err) {
		t.Error(err)
	}
}
