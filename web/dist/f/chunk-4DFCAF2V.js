import{V as e,X as f,aa as g,da as v,h as b,p as d,q as c,t as w}from"./chunk-BN5ST3SG.js";var x=[["curl","curl"],["python","Python"],["node","Node.js"],["rust","Rust"],["cli","corq"]],m=b("curl");function y(){let o=d.hostname,s=new URL("queues/emails/jobs",d).href,n=w.value?.by!=="nothing",t=c.tcpPort,r=n?` \\
  -H "Authorization: Bearer $CORQ_TOKEN"`:"",i=n?', token=os.environ["CORQ_TOKEN"]':"",l=`"${c.tls?"tls":"tcp"}://${o}:${t}"`,p=n?`Client::builder(${l})
        .token(std::env::var("CORQ_TOKEN").expect("CORQ_TOKEN is set"))
        .connect()
        `:`Client::connect(${l})`;return{curl:`curl -X POST ${s}${r} \\
  -d '{"data": {"to": "ada@example.org"}}'`,python:`# pip install bunqueue-client
${n?`import os
`:""}from bunqueue import Queue, Worker

Queue("emails", host="${o}", port=${t}${i}).add("welcome", {"to": "ada@example.org"})
Worker("emails", lambda job: print("sending", job.data), host="${o}", port=${t}${i}).run()`,node:`// Node.js 18 or later
const answer = await fetch("${s}", {
  method: "POST",${n?"\n  headers: { Authorization: `Bearer ${process.env.CORQ_TOKEN}` },":""}
  body: JSON.stringify({ name: "welcome", data: { to: "ada@example.org" } }),
});
console.log(await answer.json());`,rust:`// Cargo.toml: corq-client${c.tls?" with tls":""}, serde with derive, tokio with macros and rt-multi-thread
use corq_client::{Client, Error};
use serde::Serialize;

#[derive(Serialize)]
struct Email {
    to: String,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = ${p}.await?;
    let id = client.queue("emails").push(&Email { to: "ada@example.org".into() }).await?;
    println!("pushed {id}");
    Ok(())
}`,cli:`corq push emails '{"to":"ada@example.org"}'
corq pull emails`}}function T(){let o=y()[m.value];return e(f,{title:"Push a first job",class:"first",children:[e("p",{children:["This server has no jobs yet. Push one to the queue ",e("code",{children:"emails"}),": a queue exists from its first job on."]}),e(v,{label:"Language",value:m.value,options:x,onChange:s=>m.value=s}),e("div",{class:"snippet",children:[e("pre",{class:"code",tabIndex:0,children:o}),e(g,{text:o,label:"Copy the example"})]}),e("p",{class:"note",children:["This page shows the job as soon as it arrives. ",e("code",{children:"corq demo"})," fills the server with a minute of sample work."]})]})}function N({values:o,tone:s="accent",height:n=26}){let t=o.map(a=>a??0),r=Math.max(...t,0);if(o.length<2||r===0)return e("span",{class:"spark-none",style:{height:`${n}px`}});let[i,u]=[100,2],l=a=>a/(t.length-1)*i,p=a=>n-u-a/r*(n-2*u),h=t.map((a,$)=>`${$?"L":"M"}${l($).toFixed(1)} ${p(a).toFixed(1)}`).join("");return e("svg",{class:`spark ${s}`,viewBox:`0 0 ${i} ${n}`,height:n,preserveAspectRatio:"none","aria-hidden":"true",children:[e("path",{class:"area",d:`${h}L${i} ${n}L0 ${n}Z`}),e("path",{class:"line",d:h})]})}function R({share:o,label:s,tone:n}){let t=Math.round(Math.min(1,Math.max(0,o))*100),r=n??(t>=90?"bad":t>=70?"warn":"");return e("span",{class:"meter-row",children:[e("span",{class:`meter ${r}`,role:"meter","aria-label":s,"aria-valuemin":0,"aria-valuemax":100,"aria-valuenow":t,children:e("i",{style:{width:`${t}%`}})}),e("span",{class:"figure",children:[t," %"]})]})}export{T as a,N as b,R as c};
