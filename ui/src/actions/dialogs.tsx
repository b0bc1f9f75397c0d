/** Shows the open dialog. */
import { useStore } from "../state/store";
import { BranchDialog } from "./branch";
import { DeleteDialog } from "./delete";
import { ForkDialog } from "./fork";
import { KillDialog } from "./kill";
import { dialog } from "./open";
import { PauseDialog } from "./pause";
import { PromoteDialog } from "./promote";
import { RollbackDialog } from "./rollback";

export function Dialogs() {
  const open = useStore(dialog);
  const close = (): void => dialog.set(null);
  switch (open?.do) {
    case "fork": return <ForkDialog snapshot={open.snapshot} onClose={close} />;
    case "delete": return <DeleteDialog snapshot={open.snapshot} onClose={close} />;
    case "branch": return <BranchDialog sandbox={open.sandbox} onClose={close} />;
    case "rollback": return <RollbackDialog sandbox={open.sandbox} onClose={close} />;
    case "pause": return <PauseDialog sandbox={open.sandbox} onClose={close} />;
    case "promote": return <PromoteDialog sandbox={open.sandbox} onClose={close} />;
    case "kill": return <KillDialog ids={open.ids} onClose={close} />;
    default: return null;
  }
}
