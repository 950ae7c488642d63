// A table of any length: only the rows that are seen are there. What is below is asked for when it comes near.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Column<Row> {
    key: string;
    label: string;
    width?: string;
    right?: boolean;
    /** Left out where there is little room. */
    wide?: boolean;
    /** Only where there is much room: the others would be cut. */
    spare?: boolean;
    /** The word by which it is sorted. */
    sort?: string;
    cell: (row: Row) => ComponentChildren;
}

/** Rows beyond those that are seen, so that they are there before they are seen. */
const OVERSCAN = 6;
/**
 * Rows that are made in one task where all are others: at first, and after a leap. All that fit at once, with their layout, take as
 * long as several frames, at each turn of the wheel.
 */
const STEP = 10;
/** How long a table stands still after a leap before it gets the rows beyond those that are seen. */
const REST_MS = 200;

export function Table<Row>(props: {
    label: string;
    columns: readonly Column<Row>[];
    rows: readonly Row[];
    keyOf: (row: Row) => string;
    rowHeight?: number;
    sort?: { by: string; down: boolean };
    onSort?: (by: string) => void;
    /** The last rows are near. */
    onEnd?: () => void;
    /** Which rows are seen now. */
    onSeen?: (rows: readonly Row[]) => void;
    empty?: ComponentChildren;
    tall?: boolean;
    more?: boolean;
}) {
    const { rows, rowHeight = 38 } = props;
    const box = useRef<HTMLDivElement>(null);
    const isEmpty = rows.length === 0;
    const [view, setView] = useState({ top: 0, height: 600 });
    const own = useRef({ isEmpty, most: STEP, look: () => {} }).current;
    own.isEmpty = isEmpty;
    if (isEmpty) own.most = STEP;
    useEffect(() => {
        const element = box.current!;
        let drawn = 0;
        let timer = 0;
        let isSoon = false;
        const leapt = () => Math.abs(element.scrollTop - drawn) > OVERSCAN * rowHeight;
        const draw = () => {
            const height = element.clientHeight;
            const isFull = () => own.most * rowHeight > height + rowHeight;
            own.most = leapt() ? STEP : isFull() ? Infinity : own.most + STEP;
            drawn = element.scrollTop;
            setView({ top: drawn, height });
            isSoon = false;
            if (own.most < Infinity && !own.isEmpty) later(isFull() ? REST_MS : 0);
        };
        const later = (ms: number) => {
            isSoon = ms === 0;
            timer = window.setTimeout(draw, ms);
        };
        own.look = () => {
            if (isSoon) return;
            clearTimeout(timer);
            if (leapt() || own.most < Infinity) later(0);
            else draw();
        };
        const observer = new ResizeObserver(own.look);
        observer.observe(element);
        element.addEventListener("scroll", own.look, { passive: true });
        return () => {
            clearTimeout(timer);
            observer.disconnect();
        };
    }, []);
    useEffect(() => own.look(), [isEmpty]);
    const isWhole = own.most === Infinity;
    const top = Math.floor(view.top / rowHeight);
    const first = Math.max(0, isWhole ? top - OVERSCAN : top);
    const last = Math.min(rows.length, isWhole ? Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN : first + own.most);
    const seen = rows.slice(first, last);
    const near = props.more && last >= rows.length - OVERSCAN;
    useEffect(() => {
        if (near) props.onEnd?.();
    }, [near, rows.length]);
    const names = seen.map(props.keyOf).join("\n");
    useEffect(() => props.onSeen?.(seen), [names]);
    const { columns, sort } = props;
    const needed = { "--wide": `${roomOf(columns, false)}px`, "--small": `${roomOf(columns, true)}px` };
    return (
        <div class={`table-box ${props.tall ? "tall" : ""}`} ref={box} tabIndex={0} role="region" aria-label={props.label}>
            <table style={needed} aria-rowcount={props.more ? -1 : rows.length + 1}>
                <thead>
                    <tr>
                        {columns.map((column) => (
                            <th
                                key={column.key}
                                scope="col"
                                class={classes(column)}
                                style={column.width ? { "--width": column.width } : undefined}
                                aria-sort={
                                    column.sort && sort?.by === column.sort
                                        ? sort.down
                                            ? "descending"
                                            : "ascending"
                                        : undefined
                                }
                            >
                                {column.sort && props.onSort ? (
                                    <button type="button" class="sort" onClick={() => props.onSort?.(column.sort!)}>
                                        {sort?.by === column.sort && <span aria-hidden="true">{sort.down ? "↓ " : "↑ "}</span>}
                                        {column.label}
                                    </button>
                                ) : (
                                    column.label
                                )}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody onKeyDown={moveByKeys}>
                    {first > 0 && (
                        <tr aria-hidden="true" class="spacer">
                            <td style={{ height: `${first * rowHeight}px` }} />
                        </tr>
                    )}
                    {seen.map((row, index) => (
                        <tr key={props.keyOf(row)} aria-rowindex={first + index + 2} style={{ height: `${rowHeight}px` }}>
                            {columns.map((column) => (
                                <td key={column.key} class={classes(column)}>
                                    {column.cell(row)}
                                </td>
                            ))}
                        </tr>
                    ))}
                    {last < rows.length && (
                        <tr aria-hidden="true" class="spacer">
                            <td style={{ height: `${(rows.length - last) * rowHeight}px` }} />
                        </tr>
                    )}
                </tbody>
            </table>
            {isEmpty && <div class="empty">{props.empty ?? "Nothing here"}</div>}
        </div>
    );
}

/** What a table needs so that columns without a width are seen; with less it scrolls. On a phone columns are a fifth narrower. */
function roomOf<Row>(columns: readonly Column<Row>[], isSmall: boolean): number {
    const shown = columns.filter((column) => !(isSmall ? column.wide : column.spare));
    return shown.reduce((sum, { width }) => sum + (width === undefined ? 110 : parseInt(width) * (isSmall ? 0.8 : 1)), 0);
}

function classes<Row>(column: Column<Row>): string {
    return [column.right && "right", column.wide && "wide", column.spare && "spare"].filter(Boolean).join(" ");
}

/** Up and down go from the link of a row to that of the next. */
function moveByKeys(event: KeyboardEvent): void {
    const step = event.key === "ArrowDown" || event.key === "j" ? 1 : event.key === "ArrowUp" || event.key === "k" ? -1 : 0;
    const target = event.target as HTMLElement;
    if (step === 0 || target.tagName === "INPUT") return;
    const row = target.closest("tr");
    const next = step > 0 ? row?.nextElementSibling : row?.previousElementSibling;
    const focus = next?.querySelector<HTMLElement>("a, button");
    if (!focus) return;
    event.preventDefault();
    focus.focus();
    focus.scrollIntoView({ block: "nearest" });
}
