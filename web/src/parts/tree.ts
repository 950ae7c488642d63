// Where the jobs of a flow are drawn: a column for each depth, a row for each job without children, and each parent in the
// middle of its children. Nothing here recurses, as a flow may be deep.

export interface Node {
    /** One that the server does not name has an id that no job bears. */
    id: string;
    depth: number;
    parentId: string | null;
    state: string;
    queue?: string;
    name?: string;
    children?: number;
    childrenCompleted?: number;
}

export interface Placed {
    node: Node;
    /** The row, which is between two of them for a parent of an even number of children. */
    row: number;
    column: number;
    parent: Placed | null;
    own: Placed[];
}

export interface Tree {
    placed: Placed[];
    rows: number;
    columns: number;
}

/** Places jobs as the server lists them: the one at the root first, each after its parent. */
export function place(nodes: readonly Node[]): Tree {
    const all = new Map<string, Placed>();
    for (const node of nodes) {
        if (all.has(node.id)) continue;
        const parent = (node.parentId !== null && all.get(node.parentId)) || null;
        const own: Placed = { node, row: 0, column: parent ? parent.column + 1 : 0, parent, own: [] };
        parent?.own.push(own);
        all.set(node.id, own);
    }
    const placed = [...all.values()];
    let rows = 0;
    let columns = 0;
    // Down the tree in the order of the children, as rows are given to those that have none.
    const open = placed.filter((one) => !one.parent).reverse();
    const order: Placed[] = [];
    while (open.length > 0) {
        const one = open.pop()!;
        order.push(one);
        columns = Math.max(columns, one.column + 1);
        if (one.own.length === 0) one.row = rows++;
        for (let at = one.own.length - 1; at >= 0; at--) open.push(one.own[at]!);
    }
    for (let at = order.length - 1; at >= 0; at--) {
        const { own } = order[at]!;
        if (own.length > 0) order[at]!.row = (own[0]!.row + own[own.length - 1]!.row) / 2;
    }
    return { placed: order, rows, columns };
}
