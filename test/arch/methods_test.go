package arch

import (
	"go/ast"
	"testing"
)

// mostMethods is how many methods a type may have, those that it does not offer to others
// included: beyond it it is several types in one.
const mostMethods = 40

func TestNoTypeDoesEverything(t *testing.T) {
	for of, n := range methodCounts(t) {
		if n > mostMethods {
			t.Errorf("%s has %d methods, want at most %d: which types are in it?", of, n, mostMethods)
		}
	}
}

// methodCounts is how many methods each type declares. Those of types that it embeds are
// not among them.
func methodCounts(t *testing.T) map[string]int {
	counts := map[string]int{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				counts[s.pkg.name()+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	return counts
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
