package e2e

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// TestTimelines compares the continuations of one sandbox: the best are kept, two are merged, and one
// takes its parent's place.
func TestTimelines(t *testing.T) {
	d := shared(t)
	d.unchanged()
	t.Cleanup(func() { // after the sandboxes have ended
		for _, tag := range []string{"before", "tried"} {
			if err := d.c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{Force: true}); err != nil && !client.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	above := d.fork(1)[0].ID
	d.sh(above, `mkdir -p /srv/w/old && cd /srv/w && seq 1 20 > text && echo a > both && echo a > gone && echo a > mode && echo a > old/x && ln -s a link && printf 'a\0b' > bin; sync`)
	d.eval(above, "colour = 'parent'")
	n := 3
	b, err := d.c.Branch(t.Context(), above, api.BranchRequest{Tag: "tried", N: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // ended ones are gone
		for _, c := range b.Children {
			_ = d.c.Kill(context.Background(), c.ID)
		}
	})
	for i, c := range b.Children {
		d.sh(c.ID, "echo "+strconv.Itoa(10*(i+1))+" > /tmp/score")
	}
	ours, theirs, worst := b.Children[2].ID, b.Children[1].ID, b.Children[0].ID
	d.sub("keep", func(t *testing.T) { keepsTheBest(t, d, worst) })
	d.sub("merge", func(t *testing.T) { merges(t, d, theirs, ours) })
	d.sub("promote", func(t *testing.T) { promotes(t, d, ours, above) })
}

func keepsTheBest(t *testing.T, d *daemon, worst string) {
	code, out, errs := d.cli("keep", "--best", "2", "--by", "cat /tmp/score", "--of", "tried", "--dry-run")
	if code != 0 || strings.Count(out, "would keep") != 2 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	res, err := client.Keep(t.Context(), d.c, api.KeepRequest{Of: "tried", Best: 2, File: "/tmp/score"})
	if err != nil {
		t.Fatal(err)
	}
	if res.Kept != 2 || res.Ended != 1 || res.Sandboxes[2].ID != worst || *res.Sandboxes[0].Score != 30 {
		t.Errorf("%+v", res)
	}
	if _, err := d.c.Sandbox(t.Context(), worst); !client.IsNotFound(err) {
		t.Errorf("the worst one: %v", err)
	}
}

func merges(t *testing.T, d *daemon, theirs, ours string) {
	d.sh(ours, `cd /srv/w && sed -i s/^2$/two/ text && echo ours > both && echo b > gone && chmod 600 mode && echo kept > old/mine && mkfifo pipe`)
	d.sh(theirs, `cd /srv/w && sed -i s/^19$/nineteen/ text && echo theirs > both && rm gone && echo b > mode && rm -r old && ln -sfn /etc link && mkdir -p new/deep && printf 'x\0y' > bin && echo hi > "new/deep/a b" && chown 1000:1000 new && chmod 4755 "new/deep/a b" && mkfifo new/pipe`)
	dry, err := client.Merge(t.Context(), d.c, ours, api.MergeRequest{Theirs: theirs, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", dry)
	if dry.Applied || dry.Base != "tried" || dry.Unresolved != 3 || !dry.Complete {
		t.Errorf("%+v", dry)
	}
	if got := d.sh(ours, "cat /srv/w/both"); got != "ours" {
		t.Errorf("a dry run has written %q", got)
	}
	res, err := client.Merge(t.Context(), d.c, ours, api.MergeRequest{Theirs: theirs, Resolve: api.MergeOurs,
		Paths: map[string]api.MergeSide{"/srv/w/both": api.MergeTheirs}})
	if err != nil {
		t.Fatal(err)
	}
	if !res.Applied || res.Unresolved != 0 {
		t.Errorf("%+v", res)
	}
	const look = `cd /srv/w && tr '\n' ' ' < text; cat both gone mode old/mine "new/deep/a b"; stat -c '%a %u' mode new "new/deep/a b"; readlink link; od -An -c bin; ls old new`
	want := "1 two 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 nineteen 20 theirs\nb\nb\nkept\nhi\n600 0\n755 1000\n4755 0\n/etc\n   x  \\0   y\nnew:\ndeep\n\nold:\nmine"
	if got := d.sh(ours, look); got != want {
		t.Errorf("merged:\n%s\nwant:\n%s", got, want)
	}
	again, err := client.Merge(t.Context(), d.c, ours, api.MergeRequest{Theirs: theirs, DryRun: true, Resolve: api.MergeOurs})
	if err != nil || len(again.Changes) != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func promotes(t *testing.T, d *daemon, child, above string) {
	host := d.sh(above, "hostname")
	d.eval(child, "colour = 'child'")
	res, err := client.Promote(t.Context(), d.c, child, api.PromoteRequest{Tag: "before"})
	if err != nil {
		t.Fatal(err)
	}
	if res.Sandbox.ID != above || res.PromotedFrom != child || res.KeptIn != "before" {
		t.Errorf("%+v", res)
	}
	if got := d.eval(above, "colour"); !strings.Contains(got, "child") {
		t.Errorf("its interpreter says %q", got)
	}
	if got := d.sh(above, "hostname; cat /tmp/score"); got != host+"\n30" {
		t.Errorf("its name and its files: %q", got)
	}
	if _, err := d.c.Sandbox(t.Context(), child); !client.IsNotFound(err) {
		t.Errorf("the child: %v", err)
	}
	if _, err := d.c.Rollback(t.Context(), above, "before"); err != nil {
		t.Fatal(err)
	}
	if got := d.eval(above, "colour"); !strings.Contains(got, "parent") {
		t.Errorf("after the way back its interpreter says %q", got)
	}
}
