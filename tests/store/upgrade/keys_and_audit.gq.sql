BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'gq','first','2026-11-22 00:31:40.685481+00:00');
INSERT INTO "_sqlite_migrations" VALUES(2,'gq','keys_and_audit','2026-11-22 00:31:40.693330+00:00');
CREATE TABLE allocations (              -- what an attempt holds on one node
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        node TEXT NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        cpu_ids TEXT NOT NULL,              -- 0-3,8
        gpu_ids TEXT NOT NULL,
        memory_mib INTEGER NOT NULL,
        phase TEXT NOT NULL,                -- preparing prepared going live stopping
        is_stranded INTEGER NOT NULL,       -- its node is lost; what it holds is not given away
        freed_at REAL,                      -- empty while the node still has it
        user_cpu_s REAL,
        system_cpu_s REAL,
        max_rss_mib INTEGER,
        PRIMARY KEY (job_id, attempt, node)
    );
INSERT INTO "allocations" VALUES(1,1,'n1',1,1,0,'0','',0,'stopping',0,1.79530750194938158986e+09,0.00381,0.0,11);
INSERT INTO "allocations" VALUES(2,1,'n1',2,2,0,'0-1','',0,'stopping',0,1.79530750273782396322e+09,0.197184,0.00692,25);
INSERT INTO "allocations" VALUES(3,1,'n1',1,4,0,'0-3','',0,'live',0,NULL,NULL,NULL,NULL);
INSERT INTO "allocations" VALUES(3,1,'n2',1,4,0,'0-3','',0,'live',0,NULL,NULL,NULL,NULL);
CREATE TABLE attempts (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        nodes TEXT NOT NULL,                -- names, batch node first
        node_count INTEGER NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        allocated_at REAL NOT NULL,
        start_at REAL,
        end_at REAL,
        outcome TEXT,
        exit_code INTEGER,
        signal INTEGER,
        reason TEXT NOT NULL,
        why TEXT NOT NULL,
        failure_class TEXT NOT NULL,
        after_ending TEXT,                  -- end, requeue, retry
        grace_s INTEGER NOT NULL,
        master_port INTEGER NOT NULL,
        next_step INTEGER NOT NULL,
        user_cpu_s REAL NOT NULL,
        system_cpu_s REAL NOT NULL,
        max_rss_mib INTEGER NOT NULL,
        grants TEXT NOT NULL,               -- JSON: what it holds on each node
        is_forgotten INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (job_id, attempt)
    );
INSERT INTO "attempts" VALUES(1,1,'n1',1,1,1,0,0,1.79530750186145615578e+09,1.79530750190660881994e+09,1.79530750192988967895e+09,'FAILED',3,0,'NonZeroExitCode','','','end',0,26000,0,0.00381,0.0,11,'[{"node":"n1","cpus":[0]}]',0);
INSERT INTO "attempts" VALUES(2,1,'n1',1,2,2,0,0,1.79530750234778189661e+09,1.79530750236681222917e+09,1.79530750273308515544e+09,'COMPLETED',0,0,'None','','','end',0,26001,1,0.197184,0.00692,25,'[{"node":"n1","tasks":2,"cpus":[0,1]}]',0);
INSERT INTO "attempts" VALUES(3,1,'n1,n2',2,2,8,0,0,1795307503.14978,1.7953075032218961715e+09,NULL,NULL,NULL,NULL,'None','','',NULL,0,26002,0,0.0,0.0,0,'[{"node":"n1","cpus":[0,1,2,3]},{"node":"n2","cpus":[0,1,2,3]}]',0);
CREATE TABLE audit (                    -- who did what, when, from where, and what came of it; only added to
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        user TEXT NOT NULL,
        uid INTEGER,
        origin TEXT NOT NULL,
        action TEXT NOT NULL,
        object TEXT NOT NULL,
        outcome TEXT NOT NULL,              -- done, or the code of the refusal
        detail TEXT NOT NULL
    );
INSERT INTO "audit" VALUES(1,1.79530750186145615578e+09,'root',0,'local','Submit','job 1','done','ended');
INSERT INTO "audit" VALUES(2,1.79530750234778189661e+09,'root',0,'local','Submit','job 2','done','steps');
INSERT INTO "audit" VALUES(3,1.79530750268273806566e+09,'root',0,'local','CreateStep','job 2','done','');
INSERT INTO "audit" VALUES(4,1795307503.14978,'root',0,'local','Submit','job 3','done','running');
INSERT INTO "audit" VALUES(5,1.79530750361057114599e+09,'root',0,'local','Submit','job 4','done','waits');
INSERT INTO "audit" VALUES(6,1.79530750402033877372e+09,'root',0,'local','Submit','job 5','done','later');
INSERT INTO "audit" VALUES(7,1.79530750433554506305e+09,'root',0,'local','Submit','job 6','done','held');
CREATE TABLE events (                   -- the change log
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        job_id INTEGER,
        node TEXT,
        body TEXT NOT NULL                  -- JSON
    );
INSERT INTO "events" VALUES(1,1.79530750147609806065e+09,'NodeRegistered',NULL,'n1','{"type":"NodeRegistered","at":1795307501.476098,"node":"n1","address":"127.0.0.1","inventory":{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-b8042c60-3b94-592f-997d-c400248f7b4b","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-76965d93-ea05-583f-93c3-755d55d6d206","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0"},"incarnation":"40f2fa6acba4880f","boot_id":"67f4be14-b041-4f75-9674-d937efbaa557","step_endpoint":"ipc:///tmp/f-oldr/gq/06e765347eea8e6f/step-n1.sock","ticket_key":"VBLakmfav8hRwXcn6MGqA7aulC1mRX9Ji0HPNjSfrqU="}');
INSERT INTO "events" VALUES(2,1.79530750148687481878e+09,'NodeRegistered',NULL,'n2','{"type":"NodeRegistered","at":1795307501.4868748,"node":"n2","address":"127.0.0.1","inventory":{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-88bc4f95-be20-58e6-a652-c46a0aeeb9dc","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-92921a64-7c8c-5653-bde5-2357f9576a41","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0"},"incarnation":"73c1848f357e896e","boot_id":"67f4be14-b041-4f75-9674-d937efbaa557","step_endpoint":"ipc:///tmp/f-oldr/gq/06e765347eea8e6f/step-n2.sock","ticket_key":"YeKHBxBDpURHuk85AqlAIrtTFlFMurAsSI3BYrlvLBk="}');
INSERT INTO "events" VALUES(3,1.79530750186145615578e+09,'JobSubmitted',1,NULL,'{"type":"JobSubmitted","at":1795307501.8614562,"job_id":1,"user":"root","uid":0,"gid":0,"spec":{"name":"ended","resources":{},"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"exit 3","script_digest":"bb6220bfa599c6294ebc0954c2781c5513b565eb55f01aba387bfd0dc90176b1"},"partition":"main","time_limit_s":null,"requeue":true}');
INSERT INTO "events" VALUES(4,1.79530750186145615578e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795307501.8614562,"request_id":"DgY1frYHbxh4m60iakOFvQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQB"}');
INSERT INTO "events" VALUES(5,1.79530750186145615578e+09,'JobAllocated',1,NULL,'{"type":"JobAllocated","at":1795307501.8614562,"attempt_id":[1,1],"grants":[{"node":"n1","cpus":[0]}]}');
INSERT INTO "events" VALUES(6,1.79530750188623094551e+09,'PartPrepared',1,'n1','{"type":"PartPrepared","at":1795307501.886231,"attempt_id":[1,1],"node":"n1","master_port":26000}');
INSERT INTO "events" VALUES(7,1.79530750188623094551e+09,'PartsReleased',1,NULL,'{"type":"PartsReleased","at":1795307501.886231,"attempt_id":[1,1],"nodes":["n1"],"master_port":26000}');
INSERT INTO "events" VALUES(8,1.79530750193973708157e+09,'PartWentLive',1,'n1','{"type":"PartWentLive","at":1795307501.939737,"attempt_id":[1,1],"node":"n1"}');
INSERT INTO "events" VALUES(9,1.79530750190660881994e+09,'JobStarted',1,NULL,'{"type":"JobStarted","at":1795307501.9066088,"attempt_id":[1,1],"master_port":26000}');
INSERT INTO "events" VALUES(10,1.79530750192988967895e+09,'JobEnding',1,NULL,'{"type":"JobEnding","at":1795307501.9298897,"attempt_id":[1,1],"outcome":"FAILED","then":"end","exit":{"code":3},"reason":"NonZeroExitCode"}');
INSERT INTO "events" VALUES(11,1.79530750194938158986e+09,'PartEmptied',1,'n1','{"type":"PartEmptied","at":1795307501.9493816,"attempt_id":[1,1],"node":"n1","usage":{"user_cpu_s":0.00381,"system_cpu_s":0.0,"max_rss_mib":11}}');
INSERT INTO "events" VALUES(12,1.79530750194938158986e+09,'JobEnded',1,NULL,'{"type":"JobEnded","at":1795307501.9493816,"job_id":1,"outcome":"FAILED","exit":{"code":3},"reason":"NonZeroExitCode"}');
INSERT INTO "events" VALUES(13,1.79530750234778189661e+09,'JobSubmitted',2,NULL,'{"type":"JobSubmitted","at":1795307502.347782,"job_id":2,"user":"root","uid":0,"gid":0,"spec":{"name":"steps","resources":{"ntasks":2},"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"gqrun true","script_digest":"89319cb840da557c59e8576c5dc58af2d609fceef048de8812c48d4ed9e34aa7"},"partition":"main","time_limit_s":null,"requeue":true}');
INSERT INTO "events" VALUES(14,1.79530750234778189661e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795307502.347782,"request_id":"I7QvtruoncKv8hT4nA2+vA==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQC"}');
INSERT INTO "events" VALUES(15,1.79530750234778189661e+09,'JobAllocated',2,NULL,'{"type":"JobAllocated","at":1795307502.347782,"attempt_id":[2,1],"grants":[{"node":"n1","tasks":2,"cpus":[0,1]}]}');
INSERT INTO "events" VALUES(16,1.79530750235740256311e+09,'PartPrepared',2,'n1','{"type":"PartPrepared","at":1795307502.3574026,"attempt_id":[2,1],"node":"n1","master_port":26001}');
INSERT INTO "events" VALUES(17,1.79530750235740256311e+09,'PartsReleased',2,NULL,'{"type":"PartsReleased","at":1795307502.3574026,"attempt_id":[2,1],"nodes":["n1"],"master_port":26001}');
INSERT INTO "events" VALUES(18,1.79530750239032173155e+09,'PartWentLive',2,'n1','{"type":"PartWentLive","at":1795307502.3903217,"attempt_id":[2,1],"node":"n1"}');
INSERT INTO "events" VALUES(19,1.79530750236681222917e+09,'JobStarted',2,NULL,'{"type":"JobStarted","at":1795307502.3668122,"attempt_id":[2,1],"master_port":26001}');
INSERT INTO "events" VALUES(20,1.79530750268273806566e+09,'StepStarted',2,NULL,'{"type":"StepStarted","at":1795307502.682738,"step_id":[2,1,0],"key":"OuHScPBdrueBrjDqoWXFPC9qGyLCcKZgcmYJzkhMYS0=","layout":{"name":"true","parts":[{"node":"n1","first_rank":0,"tasks":2,"cpus":[0,1],"gpus":[]}],"cpus_per_task":1,"gpus_per_task":null,"kill_on_bad_exit":true,"overlap":false}}');
INSERT INTO "events" VALUES(21,1.79530750268273806566e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795307502.682738,"request_id":"gn1XfVONmjNohrlPD5M5/g==","uid":0,"answer":"h6R0eXBlq1N0ZXBDcmVhdGVkpmpvYl9pZAKnYXR0ZW1wdAGkc3RlcACja2V5xCA64dJw8F2u54GuMOqhZcU8L2obIsJwpmByZgnOSExhLaZsYXlvdXSGpG5hbWWkdHJ1ZaVwYXJ0c5GFpG5vZGWibjGqZmlyc3RfcmFuawCldGFza3MCpGNwdXOSAAGkZ3B1c5CtY3B1c19wZXJfdGFzawGtZ3B1c19wZXJfdGFza8Cwa2lsbF9vbl9iYWRfZXhpdMOnb3ZlcmxhcMKlbm9kZXORg6RwYXJ0haRub2Rlom4xqmZpcnN0X3JhbmsApXRhc2tzAqRjcHVzkgABpGdwdXOQqGVuZHBvaW502TJpcGM6Ly8vdG1wL2Ytb2xkci9ncS8wNmU3NjUzNDdlZWE4ZTZmL3N0ZXAtbjEuc29ja6pwdWJsaWNfa2V5oA=="}');
INSERT INTO "events" VALUES(22,1.79530750268633532522e+09,'StepPartReceived',2,'n1','{"type":"StepPartReceived","at":1795307502.6863353,"step_id":[2,1,0],"node":"n1"}');
INSERT INTO "events" VALUES(23,1.79530750273213434223e+09,'StepPartEnded',2,'n1','{"type":"StepPartEnded","at":1795307502.7321343,"step_id":[2,1,0],"node":"n1","exit":{},"outcome":"COMPLETED","usage":{"user_cpu_s":0.007089,"system_cpu_s":0.0,"max_rss_mib":11}}');
INSERT INTO "events" VALUES(24,1.79530750273213434223e+09,'StepFinished',2,NULL,'{"type":"StepFinished","at":1795307502.7321343,"step_id":[2,1,0],"exit":{},"outcome":"COMPLETED"}');
INSERT INTO "events" VALUES(25,1.79530750273308515544e+09,'JobEnding',2,NULL,'{"type":"JobEnding","at":1795307502.7330852,"attempt_id":[2,1],"outcome":"COMPLETED","then":"end","exit":{}}');
INSERT INTO "events" VALUES(26,1.79530750273782396322e+09,'PartEmptied',2,'n1','{"type":"PartEmptied","at":1795307502.737824,"attempt_id":[2,1],"node":"n1","usage":{"user_cpu_s":0.197184,"system_cpu_s":0.00692,"max_rss_mib":25}}');
INSERT INTO "events" VALUES(27,1.79530750273782396322e+09,'JobEnded',2,NULL,'{"type":"JobEnded","at":1795307502.737824,"job_id":2,"outcome":"COMPLETED","exit":{}}');
INSERT INTO "events" VALUES(28,1795307503.14978,'JobSubmitted',3,NULL,'{"type":"JobSubmitted","at":1795307503.14978,"job_id":3,"user":"root","uid":0,"gid":0,"spec":{"name":"running","resources":{"nodes_min":2,"cpus_per_task":4},"requeue":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"sleep 3","script_digest":"788d4e0129e3573cd706ef45e852e9128d811c83a341cc84446e45971768ef1e"},"partition":"main","time_limit_s":null,"requeue":true}');
INSERT INTO "events" VALUES(29,1795307503.14978,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795307503.14978,"request_id":"q+l1/WOLSJD/23tQLxwj7g==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQD"}');
INSERT INTO "events" VALUES(30,1795307503.14978,'JobAllocated',3,NULL,'{"type":"JobAllocated","at":1795307503.14978,"attempt_id":[3,1],"grants":[{"node":"n1","cpus":[0,1,2,3]},{"node":"n2","cpus":[0,1,2,3]}]}');
INSERT INTO "events" VALUES(31,1.79530750316595745083e+09,'PartPrepared',3,'n1','{"type":"PartPrepared","at":1795307503.1659575,"attempt_id":[3,1],"node":"n1","master_port":26002}');
INSERT INTO "events" VALUES(32,1.79530750317406821246e+09,'PartPrepared',3,'n2','{"type":"PartPrepared","at":1795307503.1740682,"attempt_id":[3,1],"node":"n2"}');
INSERT INTO "events" VALUES(33,1.79530750317406821246e+09,'PartsReleased',3,NULL,'{"type":"PartsReleased","at":1795307503.1740682,"attempt_id":[3,1],"nodes":["n2"],"master_port":26002}');
INSERT INTO "events" VALUES(34,1.79530750319262790686e+09,'PartWentLive',3,'n2','{"type":"PartWentLive","at":1795307503.192628,"attempt_id":[3,1],"node":"n2"}');
INSERT INTO "events" VALUES(35,1.79530750319262790686e+09,'PartsReleased',3,NULL,'{"type":"PartsReleased","at":1795307503.192628,"attempt_id":[3,1],"nodes":["n1"],"master_port":26002}');
INSERT INTO "events" VALUES(36,1.79530750324969673153e+09,'PartWentLive',3,'n1','{"type":"PartWentLive","at":1795307503.2496967,"attempt_id":[3,1],"node":"n1"}');
INSERT INTO "events" VALUES(37,1.7953075032218961715e+09,'JobStarted',3,NULL,'{"type":"JobStarted","at":1795307503.2218962,"attempt_id":[3,1],"master_port":26002}');
INSERT INTO "events" VALUES(38,1.79530750361057114599e+09,'JobSubmitted',4,NULL,'{"type":"JobSubmitted","at":1795307503.6105711,"job_id":4,"user":"root","uid":0,"gid":0,"spec":{"name":"waits","resources":{"gpus":1},"nice":5,"chdir":"/tmp","output":"/dev/null","comment":"as it was","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a"},"partition":"main","time_limit_s":null,"requeue":true}');
INSERT INTO "events" VALUES(39,1.79530750361057114599e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795307503.6105711,"request_id":"ipe+l/Eo8rauMsnUINSXhA==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQE"}');
INSERT INTO "events" VALUES(40,1.79530750402033877372e+09,'JobSubmitted',5,NULL,'{"type":"JobSubmitted","at":1795307504.0203388,"job_id":5,"user":"root","uid":0,"gid":0,"spec":{"name":"later","resources":{},"begin_at":1795307505.0124002,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a"},"partition":"main","time_limit_s":null,"requeue":true}');
INSERT INTO "events" VALUES(41,1.79530750402033877372e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795307504.0203388,"request_id":"0yQ9kvLhz0OSriNZHFHXJg==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQF"}');
INSERT INTO "events" VALUES(42,1.79530750433554506305e+09,'JobSubmitted',6,NULL,'{"type":"JobSubmitted","at":1795307504.335545,"job_id":6,"user":"root","uid":0,"gid":0,"spec":{"name":"held","resources":{},"is_held":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a"},"partition":"main","time_limit_s":null,"requeue":true}');
INSERT INTO "events" VALUES(43,1.79530750433554506305e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795307504.335545,"request_id":"iSDeSsW0EUo2a7VktWYjnQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQG"}');
CREATE TABLE jobs (
        job_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        user TEXT NOT NULL,
        uid INTEGER NOT NULL,
        gid INTEGER NOT NULL,
        partition TEXT NOT NULL,
        state TEXT NOT NULL,                -- PENDING STARTING RUNNING COMPLETING ENDED
        outcome TEXT,                       -- of an ended job: COMPLETED FAILED CANCELLED TIMEOUT ...
        reason TEXT NOT NULL,
        why TEXT NOT NULL,
        failure_class TEXT NOT NULL,
        hold TEXT,                          -- who holds it: user, admin, launch
        attempt INTEGER NOT NULL,           -- number of the latest attempt; 0: never allocated
        restart_count INTEGER NOT NULL,
        launch_failures INTEGER NOT NULL,
        nodes TEXT NOT NULL,                -- names, batch node first; none while it waits
        node_count INTEGER NOT NULL,        -- held or held last; wanted while it waits; likewise the next four
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        nice INTEGER NOT NULL,
        time_limit_s INTEGER,               -- empty: unlimited
        requeue INTEGER NOT NULL,
        submit_at REAL NOT NULL,
        eligible_at REAL NOT NULL,
        start_at REAL,
        end_at REAL,
        exit_code INTEGER,
        signal INTEGER,
        avoid TEXT NOT NULL,                -- JSON: node -> until when
        spec TEXT NOT NULL,                 -- JSON: all that was asked for
        is_forgotten INTEGER NOT NULL DEFAULT 0 -- ended, and no longer in the controller's memory
    );
INSERT INTO "jobs" VALUES(1,'ended','root',0,0,'main','ENDED','FAILED','NonZeroExitCode','','',NULL,1,0,0,'n1',1,1,1,0,0,0,NULL,1,1.79530750186145615578e+09,1.79530750186145615578e+09,1.79530750190660881994e+09,1.79530750192988967895e+09,3,0,'{}','{"name":"ended","resources":{},"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"exit 3","script_digest":"bb6220bfa599c6294ebc0954c2781c5513b565eb55f01aba387bfd0dc90176b1"}',0);
INSERT INTO "jobs" VALUES(2,'steps','root',0,0,'main','ENDED','COMPLETED','None','','',NULL,1,0,0,'n1',1,2,2,0,0,0,NULL,1,1.79530750234778189661e+09,1.79530750234778189661e+09,1.79530750236681222917e+09,1.79530750273308515544e+09,0,0,'{}','{"name":"steps","resources":{"ntasks":2},"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"gqrun true","script_digest":"89319cb840da557c59e8576c5dc58af2d609fceef048de8812c48d4ed9e34aa7"}',0);
INSERT INTO "jobs" VALUES(3,'running','root',0,0,'main','RUNNING',NULL,'None','','',NULL,1,0,0,'n1,n2',2,2,8,0,0,0,NULL,1,1795307503.14978,1795307503.14978,1.7953075032218961715e+09,NULL,NULL,NULL,'{}','{"name":"running","resources":{"nodes_min":2,"cpus_per_task":4},"requeue":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"sleep 3","script_digest":"788d4e0129e3573cd706ef45e852e9128d811c83a341cc84446e45971768ef1e"}',0);
INSERT INTO "jobs" VALUES(4,'waits','root',0,0,'main','PENDING',NULL,'None','','',NULL,0,0,0,'',1,1,1,1,0,5,NULL,1,1.79530750361057114599e+09,1.79530750361057114599e+09,NULL,NULL,NULL,NULL,'{}','{"name":"waits","resources":{"gpus":1},"nice":5,"chdir":"/tmp","output":"/dev/null","comment":"as it was","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a"}',0);
INSERT INTO "jobs" VALUES(5,'later','root',0,0,'main','PENDING',NULL,'None','','',NULL,0,0,0,'',1,1,1,0,0,0,NULL,1,1.79530750402033877372e+09,1.79530750501240015035e+09,NULL,NULL,NULL,NULL,'{}','{"name":"later","resources":{},"begin_at":1795307505.0124002,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a"}',0);
INSERT INTO "jobs" VALUES(6,'held','root',0,0,'main','PENDING',NULL,'None','','','user',0,0,0,'',1,1,1,0,0,0,NULL,1,1.79530750433554506305e+09,1.79530750433554506305e+09,NULL,NULL,NULL,NULL,'{}','{"name":"held","resources":{},"is_held":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a"}',0);
CREATE TABLE keys (                     -- who may come in from another host (CURVE); nothing here is secret
        public TEXT NOT NULL PRIMARY KEY,   -- Z85
        kind TEXT NOT NULL,                 -- node, user, join (a token that lets one node join)
        name TEXT NOT NULL,                 -- of the node or the user; of a token: the node that it is for
        uid INTEGER,
        gid INTEGER,
        is_login INTEGER NOT NULL,
        added_at REAL NOT NULL,
        added_by TEXT NOT NULL,
        expires_at REAL,
        joined TEXT NOT NULL,               -- of a token that was used: the key of the node that it let in
        note TEXT NOT NULL
    );
CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value);
INSERT INTO "meta" VALUES('next_job_id',7);
CREATE TABLE nodes (
        node TEXT NOT NULL PRIMARY KEY,
        address TEXT NOT NULL,
        is_lost INTEGER NOT NULL,
        is_down INTEGER NOT NULL,
        is_drained INTEGER NOT NULL,
        reason TEXT NOT NULL,
        reason_by TEXT NOT NULL,
        reason_at REAL,
        cpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        drained_gpus TEXT NOT NULL,         -- JSON: GPU -> reason
        backoff_until REAL NOT NULL,        -- left out of planning until then
        backoff_failures INTEGER NOT NULL,
        registered_at REAL NOT NULL,
        incarnation TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        step_endpoint TEXT NOT NULL,
        step_public_key TEXT NOT NULL,
        secret_ticket_key BLOB NOT NULL,
        inventory TEXT NOT NULL             -- JSON
    );
INSERT INTO "nodes" VALUES('n1','127.0.0.1',0,0,0,'','',NULL,4,12052,2,'{}',0.0,0,1.79530750147609806065e+09,'40f2fa6acba4880f','67f4be14-b041-4f75-9674-d937efbaa557','ipc:///tmp/f-oldr/gq/06e765347eea8e6f/step-n1.sock','',X'5412DA9267DABFC851C17727E8C1AA03B6AE942D66457F498B41CF36349FAEA5','{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-b8042c60-3b94-592f-997d-c400248f7b4b","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-76965d93-ea05-583f-93c3-755d55d6d206","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0"}');
INSERT INTO "nodes" VALUES('n2','127.0.0.1',0,0,0,'','',NULL,4,12052,2,'{}',0.0,0,1.79530750148687481878e+09,'73c1848f357e896e','67f4be14-b041-4f75-9674-d937efbaa557','ipc:///tmp/f-oldr/gq/06e765347eea8e6f/step-n2.sock','',X'61E287071043A54447BA4F3902A94022BB5316514CBAB02C488DC162B96F2C19','{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-88bc4f95-be20-58e6-a652-c46a0aeeb9dc","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-92921a64-7c8c-5653-bde5-2357f9576a41","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0"}');
CREATE TABLE requests (                 -- answers by request, so that a repeated request is done once
        request_id BLOB NOT NULL PRIMARY KEY,
        at REAL NOT NULL,
        uid INTEGER NOT NULL,
        answer BLOB NOT NULL
    );
INSERT INTO "requests" VALUES(X'0E06357EB6076F18789BAD226A4385BD',1.79530750186145615578e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696401');
INSERT INTO "requests" VALUES(X'23B42FB6BBA89DC2AFF214F89C0DBEBC',1.79530750234778189661e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696402');
INSERT INTO "requests" VALUES(X'827D577D538D9A336886B94F0F9339FE',1.79530750268273806566e+09,0,X'87A474797065AB5374657043726561746564A66A6F625F696402A7617474656D707401A47374657000A36B6579C4203AE1D270F05DAEE781AE30EAA165C53C2F6A1B22C270A660726609CE484C612DA66C61796F757486A46E616D65A474727565A570617274739185A46E6F6465A26E31AA66697273745F72616E6B00A57461736B7302A463707573920001A46770757390AD637075735F7065725F7461736B01AD677075735F7065725F7461736BC0B06B696C6C5F6F6E5F6261645F65786974C3A76F7665726C6170C2A56E6F6465739183A47061727485A46E6F6465A26E31AA66697273745F72616E6B00A57461736B7302A463707573920001A46770757390A8656E64706F696E74D9326970633A2F2F2F746D702F662D6F6C64722F67712F303665373635333437656561386536662F737465702D6E312E736F636BAA7075626C69635F6B6579A0');
INSERT INTO "requests" VALUES(X'ABE975FD638B4890FFDB7B502F1C23EE',1795307503.14978,0,X'82A474797065A95375626D6974746564A66A6F625F696403');
INSERT INTO "requests" VALUES(X'8A97BE97F128F2B6AE32C9D420D49784',1.79530750361057114599e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696404');
INSERT INTO "requests" VALUES(X'D3243D92F2E1CF4392AE23591C51D726',1.79530750402033877372e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696405');
INSERT INTO "requests" VALUES(X'8920DE4AC5B4114A366BB564B566239D',1.79530750433554506305e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696406');
CREATE TABLE steps (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        step INTEGER NOT NULL,
        name TEXT NOT NULL,
        nodes TEXT NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        start_at REAL NOT NULL,
        end_at REAL,
        outcome TEXT,                       -- empty while it runs
        exit_code INTEGER,
        signal INTEGER,
        user_cpu_s REAL NOT NULL,
        system_cpu_s REAL NOT NULL,
        max_rss_mib INTEGER NOT NULL,
        received TEXT NOT NULL,             -- JSON: nodes that have the order
        part_ends TEXT NOT NULL,            -- JSON: node -> how its tasks ended
        layout TEXT NOT NULL,               -- JSON
        secret_key BLOB NOT NULL,
        PRIMARY KEY (job_id, attempt, step)
    );
INSERT INTO "steps" VALUES(2,1,0,'true','n1',2,2,0,1.79530750268273806566e+09,1.79530750273213434223e+09,'COMPLETED',0,0,0.007089,0.0,11,'["n1"]','{"n1":[{},"COMPLETED"]}','{"name":"true","parts":[{"node":"n1","first_rank":0,"tasks":2,"cpus":[0,1],"gpus":[]}],"cpus_per_task":1,"gpus_per_task":null,"kill_on_bad_exit":true,"overlap":false}',X'');
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX jobs_in_memory ON jobs (job_id) WHERE is_forgotten = 0;
CREATE INDEX jobs_by_state ON jobs (state, end_at);
CREATE INDEX jobs_by_user ON jobs (user, job_id);
CREATE INDEX attempts_in_memory ON attempts (job_id) WHERE is_forgotten = 0;
CREATE INDEX allocations_held ON allocations (job_id, attempt) WHERE freed_at IS NULL;
CREATE INDEX allocations_by_node ON allocations (node, job_id);
CREATE INDEX steps_running ON steps (job_id, attempt) WHERE end_at IS NULL;
CREATE INDEX requests_by_time ON requests (at);
CREATE INDEX events_by_job ON events (job_id) WHERE job_id IS NOT NULL;
CREATE VIEW queue AS                    -- jobs that have not ended, as the queue stands
    SELECT job_id, name, user, partition, state, hold, reason, node_count, cpus, gpus, nodes, nice,
           datetime(submit_at, 'unixepoch', 'localtime') AS submitted,
           datetime(start_at, 'unixepoch', 'localtime') AS started,
           CAST(coalesce(start_at, strftime('%s', 'now')) - submit_at AS INTEGER) AS waited_s,
           time_limit_s
    FROM jobs WHERE state <> 'ENDED'
    ORDER BY state = 'PENDING', nice, job_id;
CREATE VIEW usage_by_user AS            -- held: from the allocation to the end; used: what the processes took
    SELECT jobs.user AS user,
           count(DISTINCT attempts.job_id) AS jobs,
           count(*) AS attempts,
           round(sum(attempts.gpus * held_s) / 3600, 3) AS gpu_hours_held,
           round(sum(attempts.cpus * held_s) / 3600, 3) AS cpu_hours_held,
           round(sum(user_cpu_s + system_cpu_s) / 3600, 3) AS cpu_hours_used
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) - allocated_at AS held_s FROM attempts) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.user ORDER BY gpu_hours_held DESC, user;
CREATE VIEW gpus AS
    SELECT nodes.node AS node,
           json_extract(gpu.value, '$.index') AS gpu,
           json_extract(gpu.value, '$.type') AS type,
           json_extract(gpu.value, '$.memory_mib') AS memory_mib,
           json_extract(gpu.value, '$.uuid') AS uuid,
           json_extract(drained_gpus, '$."' || json_extract(gpu.value, '$.index') || '"') AS drained_because
    FROM nodes, json_each(nodes.inventory, '$.gpus') AS gpu;
CREATE INDEX audit_by_time ON audit (at);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;
CREATE TRIGGER audit_is_never_replaced BEFORE INSERT ON audit WHEN NEW.seq > 0
    BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;
COMMIT;
