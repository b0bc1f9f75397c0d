package arch

import (
	"go/ast"
	"slices"
	"strconv"
	"testing"

	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// Every step is passed in exactly one place, and is in the list that the crash
// tests go through.
func TestFailpointsAreListedAndInPlace(t *testing.T) {
	named := map[string]failpoint.Step{} // by constant
	calls := map[string]int{}
	for _, s := range sources(t) {
		inside := s.pkg.name() == "internal/leaf/failpoint"
		ast.Inspect(s.file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && inside && len(v.Names) == 1 && isIdent(v.Type, "Step") {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				named[v.Names[0].Name] = failpoint.Step(text)
			}
			if call, ok := n.(*ast.CallExpr); ok && !inside {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && isIdent(f.X, "failpoint") && f.Sel.Name == "Here" {
					step, ok := call.Args[0].(*ast.SelectorExpr)
					if !ok {
						t.Errorf("%s/%s: failpoint.Here is called with something other than a constant of its package", s.pkg.name(), s.name)
						return true
					}
					calls[step.Sel.Name]++
				}
			}
			return true
		})
	}
	if len(named) < 10 {
		t.Fatalf("only %d steps are found", len(named))
	}
	for name, step := range named {
		if calls[name] != 1 {
			t.Errorf("failpoint.%s is in %d places, want one", name, calls[name])
		}
		if !slices.Contains(failpoint.Steps(), step) {
			t.Errorf("failpoint.%s is not in Steps", name)
		}
	}
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
