BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'gq','first','2026-11-22 03:33:25.971701+00:00');
INSERT INTO "_sqlite_migrations" VALUES(2,'gq','keys_and_audit','2026-11-22 03:33:25.973955+00:00');
INSERT INTO "_sqlite_migrations" VALUES(3,'gq','who_goes_next','2026-11-22 03:33:25.991616+00:00');
CREATE TABLE accounts (
        account TEXT NOT NULL PRIMARY KEY,
        parent TEXT NOT NULL,
        description TEXT NOT NULL,
        shares INTEGER NOT NULL,
        guaranteed_gpus INTEGER,
        borrow_gpus INTEGER,
        unix_group TEXT NOT NULL,           -- whose members are in it
        coordinators TEXT NOT NULL,         -- JSON
        default_qos TEXT NOT NULL
    );
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
INSERT INTO "allocations" VALUES(1,1,'n1',1,1,0,'0','',0,'stopping',0,1.79531840715608406074e+09,0.004418,0.0,9);
INSERT INTO "allocations" VALUES(2,1,'n1',2,2,0,'0-1','',0,'stopping',0,1.7953184082799429894e+09,0.262173,0.020133,26);
INSERT INTO "allocations" VALUES(3,1,'n1',1,4,2,'0-3','0-1',0,'live',0,NULL,NULL,NULL,NULL);
INSERT INTO "allocations" VALUES(3,1,'n2',1,4,2,'0-3','0-1',0,'live',0,NULL,NULL,NULL,NULL);
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
        is_forgotten INTEGER NOT NULL DEFAULT 0, billing INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (job_id, attempt)
    );
INSERT INTO "attempts" VALUES(1,1,'n1',1,1,1,0,0,1.79531840706826448447e+09,1.79531840712371969226e+09,1.79531840714846038821e+09,'FAILED',3,0,'NonZeroExitCode','','','end',0,26500,0,0.004418,0.0,9,'[{"node":"n1","cpus":[0]}]',0,0);
INSERT INTO "attempts" VALUES(2,1,'n1',1,2,2,0,0,1.79531840779766321183e+09,1.79531840782961797718e+09,1.79531840827603363986e+09,'COMPLETED',0,0,'None','','','end',0,26501,1,0.262173,0.020133,26,'[{"node":"n1","tasks":2,"cpus":[0,1]}]',0,0);
INSERT INTO "attempts" VALUES(3,1,'n1,n2',2,2,8,4,0,1.79531840912669754029e+09,1.79531840918116092679e+09,NULL,NULL,NULL,NULL,'None','','',NULL,0,26502,0,0.0,0.0,0,'[{"node":"n1","cpus":[0,1,2,3],"gpus":[0,1]},{"node":"n2","cpus":[0,1,2,3],"gpus":[0,1]}]',0,4000000);
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
INSERT INTO "audit" VALUES(1,1.79531840706826448447e+09,'root',0,'local','Submit','job 1','done','wrap');
INSERT INTO "audit" VALUES(2,1.79531840779766321183e+09,'root',0,'local','Submit','job 2','done','wrap');
INSERT INTO "audit" VALUES(3,1.79531840822505164151e+09,'root',0,'local','CreateStep','job 2','done','');
INSERT INTO "audit" VALUES(4,1.79531840912669754029e+09,'root',0,'local','Submit','job 3','done','running');
INSERT INTO "audit" VALUES(5,1.79531841136727499967e+09,'root',0,'local','Submit','job 4','done','wrap');
INSERT INTO "audit" VALUES(6,1.79531841164104413984e+09,'root',0,'local','Submit','job 5','done','wrap');
INSERT INTO "audit" VALUES(7,1.79531841193128943439e+09,'root',0,'local','Submit','job 6','done','wrap');
CREATE TABLE budgets (                  -- of limits in GPU-hours a day, week or month: what is used up
        holder TEXT NOT NULL,
        name TEXT NOT NULL,
        resource TEXT NOT NULL,
        per_user INTEGER NOT NULL,
        user TEXT NOT NULL,                 -- empty: all users together
        began_at REAL NOT NULL,             -- the day, week or month
        used REAL NOT NULL,                 -- weighted GPU-seconds until used_at
        used_at REAL NOT NULL,
        rate INTEGER NOT NULL,              -- millionths of a weighted GPU in use since then
        PRIMARY KEY (holder, name, resource, per_user, user)
    );
CREATE TABLE events (                   -- the change log
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        job_id INTEGER,
        node TEXT,
        body TEXT NOT NULL                  -- JSON
    );
INSERT INTO "events" VALUES(1,1.79531840603854060166e+09,'HalfLifeSet',NULL,NULL,'{"type":"HalfLifeSet","at":1795318406.0385406,"half_life_s":604800.0}');
INSERT INTO "events" VALUES(2,1.79531840652224493025e+09,'NodeRegistered',NULL,'n1','{"type":"NodeRegistered","at":1795318406.522245,"node":"n1","address":"127.0.0.1","inventory":{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-b8042c60-3b94-592f-997d-c400248f7b4b","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-76965d93-ea05-583f-93c3-755d55d6d206","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{},"resources":{},"data":[],"cpu_numa":[]},"incarnation":"8db2247c9b7f1249","boot_id":"67f4be14-b041-4f75-9674-d937efbaa557","step_endpoint":"ipc:///tmp/run/gq/62a2ef7581489170/step-n1.sock","ticket_key":"PsXqnAap8dg0leYezoL3RIg1CBw0JTwNkb8upTBh480="}');
INSERT INTO "events" VALUES(3,1.79531840663579392433e+09,'NodeRegistered',NULL,'n2','{"type":"NodeRegistered","at":1795318406.635794,"node":"n2","address":"127.0.0.1","inventory":{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-88bc4f95-be20-58e6-a652-c46a0aeeb9dc","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-92921a64-7c8c-5653-bde5-2357f9576a41","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{},"resources":{},"data":[],"cpu_numa":[]},"incarnation":"2ca7119c225ff6ba","boot_id":"67f4be14-b041-4f75-9674-d937efbaa557","step_endpoint":"ipc:///tmp/run/gq/62a2ef7581489170/step-n2.sock","ticket_key":"96OQb5rTvqCpmLLpOgQITSHqjR1E3L2OoKq3ilF9Qkw="}');
INSERT INTO "events" VALUES(4,1.79531840706826448447e+09,'MemberSet',NULL,NULL,'{"type":"MemberSet","at":1795318407.0682645,"member":{"user":"root","account":"default","from_group":true}}');
INSERT INTO "events" VALUES(5,1.79531840706826448447e+09,'JobSubmitted',1,NULL,'{"type":"JobSubmitted","at":1795318407.0682645,"job_id":1,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"exit 3","script_digest":"bb6220bfa599c6294ebc0954c2781c5513b565eb55f01aba387bfd0dc90176b1","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default"}');
INSERT INTO "events" VALUES(6,1.79531840706826448447e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795318407.0682645,"request_id":"8sSSEvYU5qYNG6caWRe1NA==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQB"}');
INSERT INTO "events" VALUES(7,1.79531840706826448447e+09,'JobAllocated',1,NULL,'{"type":"JobAllocated","at":1795318407.0682645,"attempt_id":[1,1],"grants":[{"node":"n1","cpus":[0]}]}');
INSERT INTO "events" VALUES(8,1.79531840708628726002e+09,'PartPrepared',1,'n1','{"type":"PartPrepared","at":1795318407.0862873,"attempt_id":[1,1],"node":"n1","master_port":26500}');
INSERT INTO "events" VALUES(9,1.79531840708628726002e+09,'PartsReleased',1,NULL,'{"type":"PartsReleased","at":1795318407.0862873,"attempt_id":[1,1],"nodes":["n1"],"master_port":26500}');
INSERT INTO "events" VALUES(10,1.79531840714715313907e+09,'PartWentLive',1,'n1','{"type":"PartWentLive","at":1795318407.1471531,"attempt_id":[1,1],"node":"n1"}');
INSERT INTO "events" VALUES(11,1.79531840712371969226e+09,'JobStarted',1,NULL,'{"type":"JobStarted","at":1795318407.1237197,"attempt_id":[1,1],"master_port":26500}');
INSERT INTO "events" VALUES(12,1.79531840714846038821e+09,'JobEnding',1,NULL,'{"type":"JobEnding","at":1795318407.1484604,"attempt_id":[1,1],"outcome":"FAILED","then":"end","exit":{"code":3},"reason":"NonZeroExitCode"}');
INSERT INTO "events" VALUES(13,1.79531840715608406074e+09,'PartEmptied',1,'n1','{"type":"PartEmptied","at":1795318407.156084,"attempt_id":[1,1],"node":"n1","usage":{"user_cpu_s":0.004418,"system_cpu_s":0.0,"max_rss_mib":9}}');
INSERT INTO "events" VALUES(14,1.79531840715608406074e+09,'JobEnded',1,NULL,'{"type":"JobEnded","at":1795318407.156084,"job_id":1,"outcome":"FAILED","exit":{"code":3},"reason":"NonZeroExitCode"}');
INSERT INTO "events" VALUES(15,1.79531840779766321183e+09,'JobSubmitted',2,NULL,'{"type":"JobSubmitted","at":1795318407.7976632,"job_id":2,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{"ntasks":2},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"gqrun -n2 true","script_digest":"82d4e2ab17ea06f92706272d5abb9429e72fe4be2e80836fc211d7de53499e36","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default"}');
INSERT INTO "events" VALUES(16,1.79531840779766321183e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795318407.7976632,"request_id":"3/tkDxYO+NjsAbovudC+Fw==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQC"}');
INSERT INTO "events" VALUES(17,1.79531840779766321183e+09,'JobAllocated',2,NULL,'{"type":"JobAllocated","at":1795318407.7976632,"attempt_id":[2,1],"grants":[{"node":"n1","tasks":2,"cpus":[0,1]}]}');
INSERT INTO "events" VALUES(18,1.79531840781274843214e+09,'PartPrepared',2,'n1','{"type":"PartPrepared","at":1795318407.8127484,"attempt_id":[2,1],"node":"n1","master_port":26501}');
INSERT INTO "events" VALUES(19,1.79531840781274843214e+09,'PartsReleased',2,NULL,'{"type":"PartsReleased","at":1795318407.8127484,"attempt_id":[2,1],"nodes":["n1"],"master_port":26501}');
INSERT INTO "events" VALUES(20,1.79531840786754584311e+09,'PartWentLive',2,'n1','{"type":"PartWentLive","at":1795318407.8675458,"attempt_id":[2,1],"node":"n1"}');
INSERT INTO "events" VALUES(21,1.79531840782961797718e+09,'JobStarted',2,NULL,'{"type":"JobStarted","at":1795318407.829618,"attempt_id":[2,1],"master_port":26501}');
INSERT INTO "events" VALUES(22,1.79531840822505164151e+09,'StepStarted',2,NULL,'{"type":"StepStarted","at":1795318408.2250516,"step_id":[2,1,0],"key":"H/wzWA1Q2jC3Ch2PcCMJPbsz+1LuCQQUYLODVWc/Ggk=","layout":{"name":"true","parts":[{"node":"n1","first_rank":0,"tasks":2,"cpus":[0,1],"gpus":[]}],"cpus_per_task":1,"gpus_per_task":null,"kill_on_bad_exit":true,"overlap":false}}');
INSERT INTO "events" VALUES(23,1.79531840822505164151e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795318408.2250516,"request_id":"52hLQ9NpgNMmw38iwOR0PQ==","uid":0,"answer":"h6R0eXBlq1N0ZXBDcmVhdGVkpmpvYl9pZAKnYXR0ZW1wdAGkc3RlcACja2V5xCAf/DNYDVDaMLcKHY9wIwk9uzP7Uu4JBBRgs4NVZz8aCaZsYXlvdXSGpG5hbWWkdHJ1ZaVwYXJ0c5GFpG5vZGWibjGqZmlyc3RfcmFuawCldGFza3MCpGNwdXOSAAGkZ3B1c5CtY3B1c19wZXJfdGFzawGtZ3B1c19wZXJfdGFza8Cwa2lsbF9vbl9iYWRfZXhpdMOnb3ZlcmxhcMKlbm9kZXORg6RwYXJ0haRub2Rlom4xqmZpcnN0X3JhbmsApXRhc2tzAqRjcHVzkgABpGdwdXOQqGVuZHBvaW502TRpcGM6Ly8vdG1wL3EtdXAvcnVuL2dxLzYyYTJlZjc1ODE0ODkxNzAvc3RlcC1uMS5zb2NrqnB1YmxpY19rZXmg"}');
INSERT INTO "events" VALUES(24,1.79531840822881841659e+09,'StepPartReceived',2,'n1','{"type":"StepPartReceived","at":1795318408.2288184,"step_id":[2,1,0],"node":"n1"}');
INSERT INTO "events" VALUES(25,1.79531840827680110928e+09,'StepPartEnded',2,'n1','{"type":"StepPartEnded","at":1795318408.276801,"step_id":[2,1,0],"node":"n1","exit":{},"outcome":"COMPLETED","usage":{"user_cpu_s":0.009770999999999998,"system_cpu_s":0.0,"max_rss_mib":9}}');
INSERT INTO "events" VALUES(26,1.79531840827680110928e+09,'StepFinished',2,NULL,'{"type":"StepFinished","at":1795318408.276801,"step_id":[2,1,0],"exit":{},"outcome":"COMPLETED"}');
INSERT INTO "events" VALUES(27,1.79531840827603363986e+09,'JobEnding',2,NULL,'{"type":"JobEnding","at":1795318408.2760336,"attempt_id":[2,1],"outcome":"COMPLETED","then":"end","exit":{}}');
INSERT INTO "events" VALUES(28,1.7953184082799429894e+09,'PartEmptied',2,'n1','{"type":"PartEmptied","at":1795318408.279943,"attempt_id":[2,1],"node":"n1","usage":{"user_cpu_s":0.262173,"system_cpu_s":0.020133,"max_rss_mib":26}}');
INSERT INTO "events" VALUES(29,1.7953184082799429894e+09,'JobEnded',2,NULL,'{"type":"JobEnded","at":1795318408.279943,"job_id":2,"outcome":"COMPLETED","exit":{}}');
INSERT INTO "events" VALUES(30,1.79531840912669754029e+09,'JobSubmitted',3,NULL,'{"type":"JobSubmitted","at":1795318409.1266975,"job_id":3,"user":"root","uid":0,"gid":0,"spec":{"name":"running","resources":{"nodes_min":2,"is_exclusive":true},"time_limit_s":1200,"requeue":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"sleep 12","script_digest":"6e8872f683d58ee2366d3ed32ab20c896f57c024a3e96d60372cb09b8d8cf9df","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"},"partition":"main","time_limit_s":1200,"requeue":true,"account":"default"}');
INSERT INTO "events" VALUES(31,1.79531840912669754029e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795318409.1266975,"request_id":"CP08o7+iwhNqWrsEIhSsoA==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQD"}');
INSERT INTO "events" VALUES(32,1.79531840912669754029e+09,'JobAllocated',3,NULL,'{"type":"JobAllocated","at":1795318409.1266975,"attempt_id":[3,1],"grants":[{"node":"n1","cpus":[0,1,2,3],"gpus":[0,1]},{"node":"n2","cpus":[0,1,2,3],"gpus":[0,1]}],"billing":4000000}');
INSERT INTO "events" VALUES(33,1.79531840914347743994e+09,'PartPrepared',3,'n1','{"type":"PartPrepared","at":1795318409.1434774,"attempt_id":[3,1],"node":"n1","master_port":26502}');
INSERT INTO "events" VALUES(34,1.79531840914920520777e+09,'PartPrepared',3,'n2','{"type":"PartPrepared","at":1795318409.1492052,"attempt_id":[3,1],"node":"n2"}');
INSERT INTO "events" VALUES(35,1.79531840914920520777e+09,'PartsReleased',3,NULL,'{"type":"PartsReleased","at":1795318409.1492052,"attempt_id":[3,1],"nodes":["n2"],"master_port":26502}');
INSERT INTO "events" VALUES(36,1.79531840917103052137e+09,'PartWentLive',3,'n2','{"type":"PartWentLive","at":1795318409.1710305,"attempt_id":[3,1],"node":"n2"}');
INSERT INTO "events" VALUES(37,1.79531840917103052137e+09,'PartsReleased',3,NULL,'{"type":"PartsReleased","at":1795318409.1710305,"attempt_id":[3,1],"nodes":["n1"],"master_port":26502}');
INSERT INTO "events" VALUES(38,1.79531840920251607894e+09,'PartWentLive',3,'n1','{"type":"PartWentLive","at":1795318409.202516,"attempt_id":[3,1],"node":"n1"}');
INSERT INTO "events" VALUES(39,1.79531840918116092679e+09,'JobStarted',3,NULL,'{"type":"JobStarted","at":1795318409.181161,"attempt_id":[3,1],"master_port":26502}');
INSERT INTO "events" VALUES(40,1.79531841136727499967e+09,'JobSubmitted',4,NULL,'{"type":"JobSubmitted","at":1795318411.367275,"job_id":4,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{"gpus":1},"time_limit_s":600,"nice":5,"chdir":"/tmp","output":"/dev/null","comment":"as it was","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"},"partition":"main","time_limit_s":600,"requeue":true,"account":"default"}');
INSERT INTO "events" VALUES(41,1.79531841136727499967e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795318411.367275,"request_id":"dpxIDzrRgXIRR4fg+8nUpQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQE"}');
INSERT INTO "events" VALUES(42,1.79531841164104413984e+09,'JobSubmitted',5,NULL,'{"type":"JobSubmitted","at":1795318411.6410441,"job_id":5,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{},"begin_at":1795318471.6379242,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default"}');
INSERT INTO "events" VALUES(43,1.79531841164104413984e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795318411.6410441,"request_id":"jDtI4UEFXpXL+Nn+jXkmrQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQF"}');
INSERT INTO "events" VALUES(44,1.79531841193128943439e+09,'JobSubmitted',6,NULL,'{"type":"JobSubmitted","at":1795318411.9312894,"job_id":6,"user":"root","uid":0,"gid":0,"spec":{"name":"wrap","resources":{},"is_held":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"},"partition":"main","time_limit_s":null,"requeue":true,"account":"default"}');
INSERT INTO "events" VALUES(45,1.79531841193128943439e+09,'RequestAnswered',NULL,NULL,'{"type":"RequestAnswered","at":1795318411.9312894,"request_id":"2AhZFQFaa0dbcuoaX3L1QQ==","uid":0,"answer":"gqR0eXBlqVN1Ym1pdHRlZKZqb2JfaWQG"}');
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
    , account TEXT NOT NULL DEFAULT '', qos TEXT NOT NULL DEFAULT 'normal', accrue_at REAL, array_job_id INTEGER, array_task_id INTEGER, array_throttle INTEGER, array_waiting TEXT, array_cancelled TEXT, array_succeeded TEXT, array_failed TEXT, dependency TEXT, never TEXT NOT NULL DEFAULT '', ready TEXT NOT NULL DEFAULT '', hook TEXT NOT NULL DEFAULT '');
INSERT INTO "jobs" VALUES(1,'wrap','root',0,0,'main','ENDED','FAILED','NonZeroExitCode','','',NULL,1,0,0,'n1',1,1,1,0,0,0,NULL,1,1.79531840706826448447e+09,1.79531840706826448447e+09,1.79531840712371969226e+09,1.79531840714846038821e+09,3,0,'{}','{"name":"wrap","resources":{},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"exit 3","script_digest":"bb6220bfa599c6294ebc0954c2781c5513b565eb55f01aba387bfd0dc90176b1","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"}',0,'default','normal',1.79531840706826448447e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','');
INSERT INTO "jobs" VALUES(2,'wrap','root',0,0,'main','ENDED','COMPLETED','None','','',NULL,1,0,0,'n1',1,2,2,0,0,0,NULL,1,1.79531840779766321183e+09,1.79531840779766321183e+09,1.79531840782961797718e+09,1.79531840827603363986e+09,0,0,'{}','{"name":"wrap","resources":{"ntasks":2},"chdir":"/tmp","submit_dir":"/tmp","submit_host":"vm","command":"gqrun -n2 true","script_digest":"82d4e2ab17ea06f92706272d5abb9429e72fe4be2e80836fc211d7de53499e36","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"}',0,'default','normal',1.79531840779766321183e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','');
INSERT INTO "jobs" VALUES(3,'running','root',0,0,'main','RUNNING',NULL,'None','','',NULL,1,0,0,'n1,n2',2,2,8,4,0,0,1200,1,1.79531840912669754029e+09,1.79531840912669754029e+09,1.79531840918116092679e+09,NULL,NULL,NULL,'{}','{"name":"running","resources":{"nodes_min":2,"is_exclusive":true},"time_limit_s":1200,"requeue":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"sleep 12","script_digest":"6e8872f683d58ee2366d3ed32ab20c896f57c024a3e96d60372cb09b8d8cf9df","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"}',0,'default','normal',1.79531840912669754029e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','');
INSERT INTO "jobs" VALUES(4,'wrap','root',0,0,'main','PENDING',NULL,'None','','',NULL,0,0,0,'',1,1,1,1,0,5,600,1,1.79531841136727499967e+09,1.79531841136727499967e+09,NULL,NULL,NULL,NULL,'{}','{"name":"wrap","resources":{"gpus":1},"time_limit_s":600,"nice":5,"chdir":"/tmp","output":"/dev/null","comment":"as it was","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"}',0,'default','normal',1.79531841136727499967e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','');
INSERT INTO "jobs" VALUES(5,'wrap','root',0,0,'main','PENDING',NULL,'None','','',NULL,0,0,0,'',1,1,1,0,0,0,NULL,1,1.79531841164104413984e+09,1.79531847163792419429e+09,NULL,NULL,NULL,NULL,'{}','{"name":"wrap","resources":{},"begin_at":1795318471.6379242,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"}',0,'default','normal',1.79531847163792419429e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','');
INSERT INTO "jobs" VALUES(6,'wrap','root',0,0,'main','PENDING',NULL,'None','','','user',0,0,0,'',1,1,1,0,0,0,NULL,1,1.79531841193128943439e+09,1.79531841193128943439e+09,NULL,NULL,NULL,NULL,'{}','{"name":"wrap","resources":{},"is_held":true,"chdir":"/tmp","output":"/dev/null","submit_dir":"/tmp","submit_host":"vm","command":"true","script_digest":"9ab8fabc8c72bfa0416414631e26bd71b01f9dfae98dcf4656b1e2d78307876a","environment_digest":"ae741e33adcd4afdc4c04b15a2334887433d259b147117b0e4765abdc663ed61"}',0,'default','normal',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','','');
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
CREATE TABLE limits (
        holder TEXT NOT NULL,               -- user, account, qos
        name TEXT NOT NULL,
        resource TEXT NOT NULL,
        per_user INTEGER NOT NULL,
        most REAL NOT NULL,
        enforced_at TEXT NOT NULL,          -- submit, start
        PRIMARY KEY (holder, name, resource, per_user)
    );
CREATE TABLE members (                  -- users in accounts, and what they used there
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        shares INTEGER NOT NULL,
        is_default INTEGER NOT NULL,
        from_group INTEGER NOT NULL,
        usage REAL NOT NULL,                -- weighted GPU-seconds, decayed until usage_at
        usage_at REAL NOT NULL,
        usage_rate INTEGER NOT NULL,        -- millionths of a weighted GPU in use since then
        PRIMARY KEY (user, account)
    );
INSERT INTO "members" VALUES('root','default',1,0,1,0.0,1.79531840918116092679e+09,4000000);
CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value);
INSERT INTO "meta" VALUES('half_life_s',604800.0);
INSERT INTO "meta" VALUES('half_lives','[]');
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
INSERT INTO "nodes" VALUES('n1','127.0.0.1',0,0,0,'','',NULL,4,12052,2,'{}',0.0,0,1.79531840652224493025e+09,'8db2247c9b7f1249','67f4be14-b041-4f75-9674-d937efbaa557','ipc:///tmp/run/gq/62a2ef7581489170/step-n1.sock','',X'3EC5EA9C06A9F1D83495E61ECE82F7448835081C34253C0D91BF2EA53061E3CD','{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-b8042c60-3b94-592f-997d-c400248f7b4b","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-76965d93-ea05-583f-93c3-755d55d6d206","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{},"resources":{},"data":[],"cpu_numa":[]}');
INSERT INTO "nodes" VALUES('n2','127.0.0.1',0,0,0,'','',NULL,4,12052,2,'{}',0.0,0,1.79531840663579392433e+09,'2ca7119c225ff6ba','67f4be14-b041-4f75-9674-d937efbaa557','ipc:///tmp/run/gq/62a2ef7581489170/step-n2.sock','',X'F7A3906F9AD3BEA0A998B2E93A04084D21EA8D1D44DCBD8EA0AAB78A517D424C','{"cpus":4,"memory_mib":12052,"gpus":[{"index":0,"uuid":"GPU-88bc4f95-be20-58e6-a652-c46a0aeeb9dc","type":"fake","memory_mib":16384,"is_fake":true},{"index":1,"uuid":"GPU-92921a64-7c8c-5653-bde5-2357f9576a41","type":"fake","memory_mib":16384,"is_fake":true}],"isolation":{"cpu":"weight","memory":"cgroup1","devices":"cgroup2","pids":"cgroup1","kill":"cgroup2"},"features":[],"gq_version":"0.1.0","attributes":{},"resources":{},"data":[],"cpu_numa":[]}');
CREATE TABLE qos (
        qos TEXT NOT NULL PRIMARY KEY,
        description TEXT NOT NULL,
        priority INTEGER NOT NULL,
        usage_factor REAL NOT NULL,
        max_time_s INTEGER,
        users TEXT NOT NULL,                -- JSON; likewise the next two
        groups TEXT NOT NULL,
        accounts TEXT NOT NULL
    );
CREATE TABLE requests (                 -- answers by request, so that a repeated request is done once
        request_id BLOB NOT NULL PRIMARY KEY,
        at REAL NOT NULL,
        uid INTEGER NOT NULL,
        answer BLOB NOT NULL
    );
INSERT INTO "requests" VALUES(X'F2C49212F614E6A60D1BA71A5917B534',1.79531840706826448447e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696401');
INSERT INTO "requests" VALUES(X'DFFB640F160EF8D8EC01BA2FB9D0BE17',1.79531840779766321183e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696402');
INSERT INTO "requests" VALUES(X'E7684B43D36980D326C37F22C0E4743D',1.79531840822505164151e+09,0,X'87A474797065AB5374657043726561746564A66A6F625F696402A7617474656D707401A47374657000A36B6579C4201FFC33580D50DA30B70A1D8F7023093DBB33FB52EE09041460B38355673F1A09A66C61796F757486A46E616D65A474727565A570617274739185A46E6F6465A26E31AA66697273745F72616E6B00A57461736B7302A463707573920001A46770757390AD637075735F7065725F7461736B01AD677075735F7065725F7461736BC0B06B696C6C5F6F6E5F6261645F65786974C3A76F7665726C6170C2A56E6F6465739183A47061727485A46E6F6465A26E31AA66697273745F72616E6B00A57461736B7302A463707573920001A46770757390A8656E64706F696E74D9346970633A2F2F2F746D702F712D75702F72756E2F67712F363261326566373538313438393137302F737465702D6E312E736F636BAA7075626C69635F6B6579A0');
INSERT INTO "requests" VALUES(X'08FD3CA3BFA2C2136A5ABB042214ACA0',1.79531840912669754029e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696403');
INSERT INTO "requests" VALUES(X'769C480F3AD18172114787E0FBC9D4A5',1.79531841136727499967e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696404');
INSERT INTO "requests" VALUES(X'8C3B48E141055E95CBF8D9FE8D7926AD',1.79531841164104413984e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696405');
INSERT INTO "requests" VALUES(X'D8085915015A6B475B72EA1A5F72F541',1.79531841193128943439e+09,0,X'82A474797065A95375626D6974746564A66A6F625F696406');
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
INSERT INTO "steps" VALUES(2,1,0,'true','n1',2,2,0,1.79531840822505164151e+09,1.79531840827680110928e+09,'COMPLETED',0,0,9.77099999999999843658e-03,0.0,9,'["n1"]','{"n1":[{},"COMPLETED"]}','{"name":"true","parts":[{"node":"n1","first_rank":0,"tasks":2,"cpus":[0,1],"gpus":[]}],"cpus_per_task":1,"gpus_per_task":null,"kill_on_bad_exit":true,"overlap":false}',X'');
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
CREATE INDEX jobs_by_array ON jobs (array_job_id, array_task_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX jobs_by_account ON jobs (account, job_id);
CREATE VIEW queue AS                    -- jobs that have not ended; of an array's record the tasks that wait in it
    SELECT job_id, array_job_id, coalesce(array_task_id, array_waiting) AS array_tasks, name, user, account, qos,
           partition, state, hold, reason, node_count, cpus, gpus, nodes, nice,
           datetime(submit_at, 'unixepoch', 'localtime') AS submitted,
           datetime(start_at, 'unixepoch', 'localtime') AS started,
           CAST(coalesce(start_at, strftime('%s', 'now')) - submit_at AS INTEGER) AS waited_s,
           time_limit_s
    FROM jobs WHERE state <> 'ENDED' AND coalesce(array_waiting, 'none') <> ''
    ORDER BY state = 'PENDING', nice, job_id;
CREATE VIEW usage_by_account AS         -- billed: from the start to the end, times what was billed
    SELECT jobs.account AS account, jobs.user AS user, count(DISTINCT attempts.job_id) AS jobs,
           round(sum(attempts.gpus * ran_s) / 3600, 3) AS gpu_hours,
           round(sum(billing / 1000000.0 * ran_s) / 3600, 3) AS billed_hours
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) - start_at AS ran_s
          FROM attempts WHERE start_at IS NOT NULL) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.account, jobs.user ORDER BY billed_hours DESC, account, user;
COMMIT;
